package dpudrain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestDecide: True only if the API servers said that nothing is left; else who is waited for.
func TestDecide(t *testing.T) {
	ending, kept, refused, waiting := user{name: "ns/b-ending", ending: true}, user{name: "ns/d-bare", kept: bare}, user{name: "ns/c-refused", refusal: refusal{"no", true}}, user{name: "ns/a-waiting"}
	for name, c := range map[string]struct {
		f       findings
		reason  string
		message string
	}{
		"nothing is left": {
			findings{dpu: "d", live: true},
			moorv1alpha1.ReasonDrained,
			"it is safe to reboot DPU d: no volume is attached through it, and it holds no writer claim; no replica is there",
		},
		"a replica": {
			findings{dpu: "d", live: true, replicas: 1},
			moorv1alpha1.ReasonDrained,
			"it is safe to reboot DPU d: no volume is attached through it, and it holds no writer claim; 1 replica there will be made anew",
		},
		"replicas": {
			findings{dpu: "d", live: true, replicas: 3},
			moorv1alpha1.ReasonDrained,
			"it is safe to reboot DPU d: no volume is attached through it, and it holds no writer claim; 3 replicas there will be made anew",
		},
		"only caches say so":        {findings{dpu: "d"}, moorv1alpha1.ReasonUnclear, "it is not known what is left: the API servers were not asked"},
		"no DPU":                    {findings{live: true}, moorv1alpha1.ReasonUnclear, "it is not known what is left: the API servers were not asked"},
		"a doubt":                   {findings{dpu: "d", live: true, doubt: "no answer"}, moorv1alpha1.ReasonUnclear, "no answer"},
		"a doubt, and pods":         {findings{dpu: "d", doubt: "no answer", pods: []user{waiting}}, moorv1alpha1.ReasonUnclear, "no answer; pod ns/a-waiting waits for others that are ending"},
		"a right to write":          {findings{dpu: "d", live: true, held: []string{"a claim"}}, moorv1alpha1.ReasonDetaching, "a claim"},
		"a pod that ends":           {findings{dpu: "d", live: true, pods: []user{ending}}, moorv1alpha1.ReasonEvicting, "pod ns/b-ending is ending"},
		"a pod to delete":           {findings{dpu: "d", live: true, pods: []user{kept}}, moorv1alpha1.ReasonNotEvicted, "pod ns/d-bare is not evicted: " + bare},
		"a pod to delete that ends": {findings{dpu: "d", live: true, pods: []user{{name: "ns/p", kept: bare, ending: true}}}, moorv1alpha1.ReasonEvicting, "pod ns/p is ending"},
		"a pod that waits":          {findings{dpu: "d", live: true, pods: []user{waiting, kept}}, moorv1alpha1.ReasonEvicting, "pod ns/d-bare is not evicted: " + bare + "; pod ns/a-waiting waits for others that are ending"},
		"one of each": {
			findings{dpu: "d", live: true, pods: []user{waiting, ending, refused, kept}, held: []string{"a claim"}},
			moorv1alpha1.ReasonBudget,
			"pod ns/d-bare is not evicted: " + bare + "; pod ns/c-refused is not evicted yet: no; pod ns/b-ending is ending; pod ns/a-waiting waits for others that are ending; a claim",
		},
		"one to delete, and one that ends": {
			findings{dpu: "d", live: true, pods: []user{ending, kept}},
			moorv1alpha1.ReasonEvicting,
			"pod ns/d-bare is not evicted: " + bare + "; pod ns/b-ending is ending",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := verdict{metav1.ConditionFalse, c.reason, c.message}
			if c.reason == moorv1alpha1.ReasonDrained {
				want.status = metav1.ConditionTrue
			}
			if got := decide(&c.f); got != want {
				t.Errorf("decided %+v\nwant    %+v", got, want)
			}
		})
	}
}

// TestManyWords: a message names what a person reads.
func TestManyWords(t *testing.T) {
	f := findings{dpu: "d", live: true}
	for i := range 12 {
		f.held = append(f.held, fmt.Sprintf("claim %d", i))
	}
	if got := tell(f.held[:mostWords]); !strings.HasSuffix(got, "claim 9") {
		t.Errorf("told %q of as many as are told", got)
	}
	got := decide(&f).message
	if !strings.HasSuffix(got, "claim 9; and 2 more") || len(f.held) != 12 {
		t.Errorf("told %q of %d", got, len(f.held))
	}
}

// TestPause: the pauses grow with the age of a drain, within bounds.
func TestPause(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: 2 * time.Second, 16 * time.Second: 2 * time.Second, 80 * time.Second: 10 * time.Second,
		8 * time.Minute: time.Minute, time.Hour: time.Minute, -time.Hour: 2 * time.Second,
	} {
		if got := pause(age); got != want {
			t.Errorf("after %s a pause of %s, want %s", age, got, want)
		}
	}
}

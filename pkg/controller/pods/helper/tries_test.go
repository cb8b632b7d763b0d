package helper

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

func asking(value string) *moorv1alpha1.PodVolume {
	return &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{moorv1alpha1.AnnotationRetry: value}}}
}

// TestDue: each failure doubles the pause, up to five minutes, and a person does not wait.
func TestDue(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		asked    string
		failures int32
		after    time.Duration
		want     time.Duration
	}{
		"the first":                       {failures: 1, want: 5 * time.Second},
		"the first, later":                {failures: 1, after: 2 * time.Second, want: 3 * time.Second},
		"the first, when it is due":       {failures: 1, after: 5 * time.Second},
		"the first, long after":           {failures: 1, after: time.Hour},
		"the second":                      {failures: 2, want: 10 * time.Second},
		"the sixth":                       {failures: 6, want: 160 * time.Second},
		"the seventh":                     {failures: 7, want: 5 * time.Minute},
		"the eighth":                      {failures: 8, want: 5 * time.Minute},
		"the hundredth":                   {failures: 100, want: 5 * time.Minute},
		"more than can be":                {failures: math.MaxInt32, want: 5 * time.Minute},
		"none that was counted":           {want: 5 * time.Second},
		"fewer than none":                 {failures: math.MinInt32, want: 5 * time.Second},
		"of a clock that was ahead":       {failures: 1, after: -time.Minute, want: 65 * time.Second},
		"a person asks":                   {asked: "2", failures: 7},
		"a person has asked, and it runs": {asked: "1", failures: 1, want: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			tries := moorv1alpha1.HelperTries{Retried: "1", Failures: tt.failures, LastFailure: &metav1.Time{Time: begin}}
			if got := Due(asking(tt.asked), tries, begin.Add(tt.after)); got != tt.want {
				t.Errorf("it is tried again after %s, want %s", got, tt.want)
			}
		})
	}
	if got := Due(asking(""), moorv1alpha1.HelperTries{Retried: "1"}, begin); got != 0 {
		t.Errorf("a failure without a time is tried again after %s", got)
	}
}

// TestTries: who asks begins the count anew, and each failure is counted.
func TestTries(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 999, time.UTC)
	at := metav1.NewTime(now.Truncate(time.Second))
	before := moorv1alpha1.HelperTries{Retried: "1", Failures: 3, LastFailure: &metav1.Time{}}
	for asked, want := range map[string]moorv1alpha1.HelperTries{"": before, "1": before, "2": {Retried: "2"}} {
		if diff := cmp.Diff(want, Next(asking(asked), before)); diff != "" {
			t.Errorf("asked by %q (-want +got):\n%s", asked, diff)
		}
	}
	if diff := cmp.Diff(moorv1alpha1.HelperTries{Retried: "1", Failures: 4, LastFailure: &at}, FailedAgain(before, now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if before.Failures != 3 || !before.LastFailure.IsZero() {
		t.Errorf("what was before has become %+v", before)
	}
}

// TestTryName: no two tries have one name, and the first one has that of before there were others.
func TestTryName(t *testing.T) {
	names := map[string]bool{}
	for _, retried := range []string{"", "1", "2"} {
		for failures := range int32(3) {
			names[TryName("pod", moorv1alpha1.HelperTries{Retried: retried, Failures: failures})] = true
		}
	}
	if len(names) != 9 || !names["pod"] || !names["pod-"+Short("1")] || !names["pod-1"] {
		t.Errorf("the names of 9 tries are %v", names)
	}
}

// TestWhy: of a failure that could not be undone, why it failed is what is left once that is tried again.
func TestWhy(t *testing.T) {
	if got := Left("no room", "locked"); got != "no room; what it has left could not be undone: locked" || Why(got) != "no room" {
		t.Errorf("%q, of which %q is why", got, Why(got))
	}
	for _, message := range []string{"", "no room", "no; room"} {
		if got := Why(message); got != message {
			t.Errorf("%q becomes %q", message, got)
		}
	}
}

func TestAndAgain(t *testing.T) {
	want := "it is locked. It is tried again by itself, later and later, and at once by: kubectl annotate podvolume v --overwrite storage.moor.dev/retry=$(date +%s)"
	if got := AndAgain("it is locked", "podvolume", "v"); got != want || strings.Contains(got, "MISSING") {
		t.Error(got)
	}
}

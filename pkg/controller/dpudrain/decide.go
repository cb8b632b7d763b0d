package dpudrain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// mostWords is how many things that are left a message names.
const mostWords = 10

// user is a pod of the host that uses volumes.
type user struct {
	// name is "namespace/name".
	name string
	// ending: it was evicted, or deleted by another.
	ending bool
	// kept says why a drain does not evict it; "" if it does.
	kept string
	// refusal is why it was not evicted when that was asked for; without words if it was not.
	refusal refusal
	// again is after what time that may be asked for again.
	again time.Duration
}

// refusal is why a pod was not evicted.
type refusal struct {
	words string
	// budget: its PodDisruptionBudget refused it.
	budget bool
}

// findings are what was found of a host and its DPU.
type findings struct {
	dpu string
	// pods of the host that use volumes.
	pods []user
	// held says what is left of the right to write: attachments, claims and devices.
	held []string
	// replicas that the DPU has.
	replicas int
	// live: the API servers themselves were asked. What a cache does not show may be there.
	live bool
	// doubt says what could not be found out; "" if nothing.
	doubt string
}

// again is after what time to look again: at the latest when a pod may be asked for that was
// refused.
func (f *findings) again() time.Duration {
	again := lookAgain
	for _, u := range f.pods {
		if u.again > 0 {
			again = min(again, u.again)
		}
	}
	return again
}

// left reports whether anything is known to be left.
func (f *findings) left() bool { return len(f.pods) > 0 || len(f.held) > 0 }

// verdict is the condition Drained.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// decide says whether the DPU is drained. Any doubt is False.
func decide(f *findings) verdict {
	switch {
	case f.doubt != "":
		return verdict{metav1.ConditionFalse, moorv1alpha1.ReasonUnclear, tell(append([]string{f.doubt}, f.words()...))}
	case f.left():
		return verdict{metav1.ConditionFalse, f.reason(), tell(f.words())}
	case !f.live || f.dpu == "":
		return verdict{metav1.ConditionFalse, moorv1alpha1.ReasonUnclear, "it is not known what is left: the API servers were not asked"}
	}
	return verdict{metav1.ConditionTrue, moorv1alpha1.ReasonDrained, f.safe()}
}

// reason is that of a drain with something left.
func (f *findings) reason() string {
	has := func(is func(user) bool) bool { return slices.ContainsFunc(f.pods, is) }
	switch {
	case len(f.pods) == 0:
		return moorv1alpha1.ReasonDetaching
	case has(func(u user) bool { return u.refusal.budget }):
		return moorv1alpha1.ReasonBudget
	case has(func(u user) bool { return u.kept == "" || u.ending }):
		return moorv1alpha1.ReasonEvicting
	}
	return moorv1alpha1.ReasonNotEvicted
}

// safe says that the DPU can be rebooted, and what that costs.
func (f *findings) safe() string {
	cost := "no replica is there"
	switch {
	case f.replicas == 1:
		cost = "1 replica there will be made anew"
	case f.replicas > 1:
		cost = fmt.Sprintf("%d replicas there will be made anew", f.replicas)
	}
	return fmt.Sprintf("it is safe to reboot DPU %s: no volume is attached through it, and it holds no writer claim; %s", f.dpu, cost)
}

// words say what is left: first what a person has to see to.
func (f *findings) words() []string {
	pods := slices.Clone(f.pods)
	slices.SortFunc(pods, func(a, b user) int { return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, u := range pods {
		out = append(out, u.words())
	}
	return append(out, f.held...)
}

// urgency orders pods by whether a person, a budget or the pod itself is waited for.
func (u user) urgency() int {
	switch {
	case u.ending:
		return 2
	case u.kept != "":
		return 0
	case u.refusal.words != "":
		return 1
	}
	return 3
}

func (u user) words() string {
	switch {
	case u.ending:
		return fmt.Sprintf("pod %s is ending", u.name)
	case u.kept != "":
		return fmt.Sprintf("pod %s is not evicted: %s", u.name, u.kept)
	case u.refusal.words != "":
		return fmt.Sprintf("pod %s is not evicted yet: %s", u.name, u.refusal.words)
	}
	return fmt.Sprintf("pod %s waits for others that are ending", u.name)
}

// tell joins words, but no more than a person reads.
func tell(words []string) string {
	if len(words) > mostWords {
		words = append(words[:mostWords:mostWords], fmt.Sprintf("and %d more", len(words)-mostWords))
	}
	return strings.Join(words, "; ")
}

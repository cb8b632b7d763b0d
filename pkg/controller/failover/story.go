package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// mostWords is how many waits a message lists.
const mostWords = 5

func underway(node *moorv1alpha1.DPUStorageNode) bool {
	return meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionFailover)
}

func held(node *moorv1alpha1.DPUStorageNode) bool {
	c := meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionFailover)
	return c != nil && c.Reason == moorv1alpha1.ReasonHeld
}

// report writes the condition, if it differs.
func (f *Failover) report(ctx context.Context, s *scene, failure error) error {
	status, reason, words := s.verdict(failure)
	c := meta.FindStatusCondition(s.node.Status.Conditions, moorv1alpha1.ConditionFailover)
	if c == nil && reason == moorv1alpha1.ReasonRecovered {
		return nil
	}
	fresh := c == nil || c.Reason != reason || c.Message != words
	if err := f.say(ctx, s, status, reason, words); err != nil {
		return err
	}
	if fresh && (reason == moorv1alpha1.ReasonHeld || reason == moorv1alpha1.ReasonFencing) {
		for _, t := range s.stakes() {
			told := words
			if t.waits != "" {
				told = t.waits
			}
			f.Recorder.Event(t.volume, corev1.EventTypeWarning, storagev1alpha1.EventFailoverHeld, fmt.Sprintf("host %s: %s", s.node.Name, told))
		}
	}
	return nil
}

// verdict is the condition that says how things are.
func (s *scene) verdict(failure error) (metav1.ConditionStatus, string, string) {
	waits := slices.Clone(s.waits)
	fencing := false
	for _, t := range s.targets {
		if t.waits != "" {
			fencing = true
			waits = append(waits, fmt.Sprintf("volume %s: %s", t.volume.Name, t.waits))
		}
	}
	if failure != nil {
		waits = append(waits, failure.Error())
	}
	slices.Sort(waits)
	if len(waits) > mostWords {
		waits = append(waits[:mostWords], fmt.Sprintf("and %d more", len(waits)-mostWords))
	}
	words := strings.Join(append([]string{string(s.state) + ": " + s.evidence}, waits...), "; ")
	switch {
	case s.underway && fencing:
		return metav1.ConditionTrue, moorv1alpha1.ReasonFencing, words
	case s.underway && s.action == Restore:
		return metav1.ConditionTrue, moorv1alpha1.ReasonReturning, words
	case s.underway:
		return metav1.ConditionTrue, moorv1alpha1.ReasonReleased, words
	case s.refused != "":
		return metav1.ConditionFalse, moorv1alpha1.ReasonHeld, words + "; " + s.refused
	case s.action == Restore && len(waits) == 0:
		return metav1.ConditionFalse, moorv1alpha1.ReasonRecovered, ""
	}
	return metav1.ConditionFalse, moorv1alpha1.ReasonHeld, words
}

// say writes the condition with the resourceVersion that was read: drivernode
// writes others in the same list.
func (f *Failover) say(ctx context.Context, s *scene, status metav1.ConditionStatus, reason, words string) error {
	before := s.node.DeepCopy()
	meta.SetStatusCondition(&s.node.Status.Conditions, metav1.Condition{
		Type: moorv1alpha1.ConditionFailover, Status: status, Reason: reason, Message: words,
		ObservedGeneration: s.node.Generation, LastTransitionTime: metav1.NewTime(f.Clock.Now()),
	})
	if equality.Semantic.DeepEqual(before.Status.Conditions, s.node.Status.Conditions) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := f.Host.Status().Patch(ctx, s.node, patch); err != nil {
		s.node = before
		return fmt.Errorf("write the condition %s of DPUStorageNode %s: %w", moorv1alpha1.ConditionFailover, s.node.Name, err)
	}
	return nil
}

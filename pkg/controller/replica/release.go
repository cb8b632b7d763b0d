package replica

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// release is the plan for a volume without a primary: its replicas stay for a
// while, since a pod that moves is back in seconds, and then go. When the
// primary went stands in the status, so that a restart starts no new while.
func release(s *pass, now time.Time, after time.Duration) plan {
	if len(s.ours()) == 0 {
		return plan{}
	}
	since := metav1.NewTime(now).Rfc3339Copy()
	if state := s.volume.Status.Replicas; state != nil && state.PrimaryGoneSince != nil {
		since = *state.PrimaryGoneSince
	}
	due := since.Add(after)
	p := plan{state: &storagev1alpha1.ReplicaState{
		PrimaryGoneSince: &since,
		Message:          fmt.Sprintf("the volume is attached nowhere; its replicas are released at %s", due.UTC().Format(time.RFC3339)),
	}}
	if left := due.Sub(now); left > 0 {
		p.again = min(left, after)
		return p
	}
	p.remove = s.standing()
	return p
}

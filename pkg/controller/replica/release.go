package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// release is the plan for a volume without a primary: its replicas stay while a pod is to
// get it, on a host or not: it may be put where a replica is. Without one they
// stay for a while, since a pod that moves is back in seconds, and then go. Since when
// stands in the status, so that a restart starts no new while.
func (r *Reconciler) release(ctx context.Context, s *pass) (plan, error) {
	if len(s.ours()) == 0 {
		return plan{}, nil
	}
	pods, _, err := r.podsOf(ctx, s.name)
	if err != nil {
		return plan{}, err
	}
	if n := slices.IndexFunc(pods, remains); n >= 0 {
		return plan{state: &storagev1alpha1.ReplicaState{
			Message: fmt.Sprintf("the volume is attached nowhere; its replicas stay for pod %s", client.ObjectKeyFromObject(pods[n])),
		}}, nil
	}
	return releaseAt(s, r.Clock.Now(), s.outlive(r.ReleaseAfter)), nil
}

// remains reports whether a pod is to get its volumes: it is not being deleted.
func remains(p *corev1.Pod) bool { return p.DeletionTimestamp.IsZero() }

// releaseAt is that plan where no pod is to get the volume.
func releaseAt(s *pass, now time.Time, after time.Duration) plan {
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

package replica

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// release is the plan for a volume without a primary: its replicas stay while a pod is to
// get it, such as one that waits for the proof that the old host is dead. Without one they
// stay for a while, since a pod that moves is back in seconds, and then go. Since when
// stands in the status, so that a restart starts no new while.
func (r *Reconciler) release(ctx context.Context, s *pass) (plan, error) {
	if len(s.ours()) == 0 {
		return plan{}, nil
	}
	pod, err := r.awaiting(ctx, s.name)
	switch {
	case err != nil:
		return plan{}, err
	case pod != "":
		return plan{state: &storagev1alpha1.ReplicaState{Message: "the volume is attached nowhere; its replicas stay for pod " + pod}}, nil
	}
	return releaseAt(s, r.Clock.Now(), s.outlive(r.ReleaseAfter)), nil
}

// awaiting is a pod that is to get the volume, of several the first by name; "" if there is
// none. One without a host counts: it may be put where a replica is.
func (r *Reconciler) awaiting(ctx context.Context, volume string) (string, error) {
	claims, err := r.users().Claims(ctx, volume)
	if err != nil {
		return "", err
	}
	first := ""
	for _, claim := range claims {
		pods, err := r.users().Pods(ctx, claim)
		if err != nil {
			return "", err
		}
		for i := range pods {
			if name := client.ObjectKeyFromObject(&pods[i]).String(); pods[i].DeletionTimestamp.IsZero() && (first == "" || name < first) {
				first = name
			}
		}
	}
	return first, nil
}

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

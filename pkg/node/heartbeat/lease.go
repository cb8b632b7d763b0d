package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// periodsPerLease is how many periods the Lease says that it lasts: as a kubelet's. It is
// for people, observers have timeouts of their own.
const periodsPerLease = 4

// renew renews the Lease as a kubelet does its own: by an update of what the server
// answered last. If that is not what it has any more, or not known, it is read, and the
// update is tried once more. The Lease goes with the DPUStorageNode.
func (h *Heart) renew(ctx context.Context, owner *moorv1alpha1.DPUStorageNode) error {
	err := h.update(ctx, owner)
	if kube.IsNotFound(err) {
		h.beats = perObject // perhaps its owner was deleted too: the next beat looks
	}
	if apierrors.IsConflict(err) || kube.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		h.lease = nil
		err = h.update(ctx, owner)
	}
	if err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", h.o.Namespace, moorv1alpha1.LeaseName(h.o.Name), err)
	}
	return nil
}

// update writes the Lease, and remembers the answer. A request without an answer is not
// made good by a read: if it was done, the next one conflicts.
func (h *Heart) update(ctx context.Context, owner *moorv1alpha1.DPUStorageNode) error {
	if h.lease == nil {
		key, last := client.ObjectKey{Namespace: h.o.Namespace, Name: moorv1alpha1.LeaseName(h.o.Name)}, &coordinationv1.Lease{}
		if _, err := kube.Find(ctx, h.o.Live, key, last); err != nil {
			return err
		}
		last.Namespace, last.Name, h.lease = key.Namespace, key.Name, last
	}
	next := h.lease.DeepCopy()
	next.Labels = map[string]string{moorv1alpha1.LabelHeartbeat: ""}
	next.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: moorv1alpha1.GroupVersion.String(), Kind: "DPUStorageNode", Name: owner.Name, UID: owner.UID,
	}}
	next.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &h.o.Name, LeaseDurationSeconds: ptr.To(int32(max(1, periodsPerLease*h.o.Period/time.Second))),
		RenewTime: ptr.To(h.renewedAfter(h.lease)),
	}
	write := func() error { return h.o.Client.Update(ctx, next) }
	if next.ResourceVersion == "" {
		write = func() error { return h.o.Client.Create(ctx, next) }
	}
	if err := write(); err != nil {
		return err
	}
	h.lease = next
	return nil
}

// refused reports whether the server has answered that it does not do what it was asked for,
// and is not only too busy, or away.
func refused(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err)
}

// renewedAfter is the time of a renewal. A clock that stands still, or is set back a
// little, must not let two renewals look like one; one that is set back by more never
// does.
func (h *Heart) renewedAfter(last *coordinationv1.Lease) metav1.MicroTime {
	now := h.o.Clock.Now().Truncate(time.Microsecond)
	if before := last.Spec.RenewTime; before != nil && !now.After(before.Time) && before.Sub(now) < h.o.Period {
		now = before.Add(time.Microsecond)
	}
	return metav1.NewMicroTime(now)
}

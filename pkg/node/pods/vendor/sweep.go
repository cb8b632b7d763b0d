package vendor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Sweep removes devices in whose place there are others, once the host does not see them any more, and has
// volumes unstaged whose VolumeAttachment is gone and of which there is no device: no call of snap-node-driver
// names those. Such are left by a call that was given up before there was a device.
func (h *Host) Sweep(ctx context.Context) error {
	var list moorv1alpha1.PodStagingList
	if err := h.o.Stagings.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list what is staged here: %w", err)
	}
	known, err := h.records.All()
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	var errs []error
	for _, r := range known {
		errs = append(errs, h.tidy(ctx, r))
	}
	for i := range list.Items {
		if p := &list.Items[i]; !p.Spec.User.IsPod() && p.Spec.NodeName == h.o.Node && p.DeletionTimestamp.IsZero() {
			errs = append(errs, h.sweep(ctx, p, known))
		}
	}
	return errors.Join(errs...)
}

// tidy removes the device in whose place another is, unless the host may see it yet.
func (h *Host) tidy(ctx context.Context, r record) error {
	if r.Before == "" {
		return nil
	}
	unlock, err := h.lock(r.Volume)
	if err != nil {
		return nil // what goes on with the volume may be just that
	}
	defer unlock()
	now, known, err := h.records.Get(keyOf(r.Volume))
	if err != nil || !known || now != r {
		return err
	}
	switch err := h.removeDevice(ctx, r.Before); {
	case errors.Is(err, provisioner.ErrInUse):
		return nil
	case err != nil:
		return err
	}
	r.Before = ""
	return h.records.Put(keyOf(r.Volume), r)
}

func (h *Host) sweep(ctx context.Context, p *moorv1alpha1.PodStaging, known []record) error {
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, h.o.Stagings.Live, client.ObjectKey{Namespace: p.Spec.User.Namespace, Name: p.Spec.User.Name}, a)
	if err != nil || found && a.UID == p.Spec.User.UID {
		return err
	}
	i := slices.IndexFunc(known, func(r record) bool { return r.Staging == p.UID })
	if i < 0 {
		return kube.DeleteExact(ctx, h.o.Stagings.Client, p)
	}
	there, err := devices{h.o.SNAP}.exists(ctx, known[i].Device, known[i].Mode)
	if err != nil || there {
		return err
	}
	return h.Close(ctx, known[i].Volume, "")
}

package dpu

import (
	"context"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
)

// missingRetry is how often a Volume that does not exist is looked for: Volumes
// are not watched here, there are too many for each DPU.
const missingRetry = 5 * time.Second

// prerequisites are what has to be there before a device is made or shown.
type prerequisites struct {
	attachments *attachments.Store
	exposures   *exposures.Exposures
}

// awaitStorage waits until the vendor's storage lets this DPU use the volume.
func (r prerequisites) awaitStorage(_ context.Context, p *pass) error {
	switch {
	case p.volumeID == "":
		return p.wait(0, "the attachment names no volume")
	case !p.attachment.Status.StorageAttached && p.dpu.DeviceName == "":
		return p.wait(0, "waits for snap-controller: the vendor's storage does not let DPU %s use volume %s yet", r.attachments.Node, p.volumeName())
	}
	return nil
}

// findVolume reads the attachment's Volume.
func (r prerequisites) findVolume(ctx context.Context, p *pass) error {
	volume, err := r.attachments.Volume(ctx, p.attachment)
	if err != nil {
		return err
	}
	p.volume = volume
	if volume == nil && p.dpu.DeviceName == "" {
		return p.wait(missingRetry, "volume %s does not exist in the DPU cluster", p.volumeName())
	}
	return nil
}

// protect puts the finalizer on before the first effect outside.
func (r prerequisites) protect(ctx context.Context, p *pass) error {
	_, err := kube.AddFinalizer(ctx, r.attachments.DPU.Client, p.attachment, storagev1alpha1.FinalizerDPUAttachment)
	return err
}

// yield lets one attachment of a volume work where there are several on this
// DPU: SNAP shows a device once.
func (r prerequisites) yield(ctx context.Context, p *pass) error {
	other, err := r.attachments.Preceding(ctx, p.attachment)
	if err != nil {
		return err
	}
	if other != nil {
		return p.wait(missingRetry, "attachment %s shows volume %s on DPU %s already: delete one of the two", other.Name, p.volumeName(), r.attachments.Node)
	}
	return nil
}

// stillStored ends the pass over a volume that the storage has taken back: it
// is not made or shown anew.
func (r prerequisites) stillStored(ctx context.Context, p *pass) error {
	if p.attachment.Status.StorageAttached {
		return nil
	}
	p.correct(ctx, r.exposures)
	return p.wait(0, "the vendor's storage no longer lets DPU %s use volume %s", r.attachments.Node, p.volumeName())
}

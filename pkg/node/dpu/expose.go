package dpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// attach brings an attachment nearer to being shown to the host. The claim
// comes before all that may be out of order, so that a right that was lost is
// given up even when the vendor is down.
func (r *Reconciler) attach(ctx context.Context, p *pass) error {
	phases := []func(context.Context, *pass) error{
		r.obeyFence, r.awaitStorage, r.findVolume, r.protect, r.yield, r.checkClaim, r.stillStored, r.promote, r.findVendor, r.makeDevice, r.grow, r.show,
	}
	for _, phase := range phases {
		if err := phase(ctx, p); err != nil {
			r.look(ctx, p)
			return err
		}
		if p.stop {
			return nil
		}
	}
	return nil
}

// awaitStorage waits until the vendor's storage lets this DPU use the volume.
func (r *Reconciler) awaitStorage(_ context.Context, p *pass) error {
	switch {
	case p.volumeID == "":
		p.wait("the attachment names no volume")
	case !p.attachment.Status.StorageAttached && p.dpu.DeviceName == "":
		p.wait(fmt.Sprintf("waits for snap-controller: the vendor's storage does not let DPU %s use volume %s yet", r.o.Node, volumeName(p.attachment)))
	}
	return nil
}

// stillStored ends the pass over a volume that the storage has taken back: it
// is not made or shown anew.
func (r *Reconciler) stillStored(ctx context.Context, p *pass) error {
	if p.attachment.Status.StorageAttached {
		return nil
	}
	r.look(ctx, p)
	p.wait(fmt.Sprintf("the vendor's storage no longer lets DPU %s use volume %s", r.o.Node, volumeName(p.attachment)))
	return nil
}

func (r *Reconciler) findVolume(ctx context.Context, p *pass) error {
	volume, err := r.liveVolume(ctx, p.attachment)
	if err != nil {
		return err
	}
	p.volume = volume
	if volume == nil && p.dpu.DeviceName == "" {
		p.wait(fmt.Sprintf("volume %s does not exist in the DPU cluster", volumeName(p.attachment)))
		p.again = missingRetry
	}
	return nil
}

func (r *Reconciler) liveVolume(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment) (*storagev1alpha1.Volume, error) {
	volume := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.o.Live, types.NamespacedName{Namespace: r.o.Namespace, Name: volumeName(attachment)}, volume)
	if err != nil || !found {
		return nil, err
	}
	return volume, nil
}

// protect puts the finalizer on before the first effect outside.
func (r *Reconciler) protect(ctx context.Context, p *pass) error {
	_, err := kube.AddFinalizer(ctx, r.o.Client, p.attachment, storagev1alpha1.FinalizerDPUAttachment)
	return err
}

// yield lets one attachment of a volume work where there are several on this
// DPU: SNAP shows a device once.
func (r *Reconciler) yield(ctx context.Context, p *pass) error {
	all, err := r.attachments(ctx)
	if err != nil {
		return err
	}
	if other := precedes(p.attachment, all); other != nil {
		p.wait(fmt.Sprintf("attachment %s shows volume %s on DPU %s already: delete one of the two", other.Name, volumeName(p.attachment), r.o.Node))
		p.again = missingRetry
	}
	return nil
}

// precedes returns the attachment of the same volume that goes before mine: by
// the right to write, by role, by having the device, by age. Nil if mine goes first.
func precedes(mine *storagev1alpha1.VolumeAttachment, all []storagev1alpha1.VolumeAttachment) *storagev1alpha1.VolumeAttachment {
	for i := range all {
		other := &all[i]
		if other.Name != mine.Name && volumeName(other) == volumeName(mine) && rank(other, mine) < 0 {
			return other
		}
	}
	return nil
}

// rank is negative if a goes before b.
func rank(a, b *storagev1alpha1.VolumeAttachment) int {
	return cmp.Or(
		first(a.Spec.Epoch != 0, b.Spec.Epoch != 0),
		first(!replica(a), !replica(b)),
		first(a.Status.DPU.DeviceName != "", b.Status.DPU.DeviceName != ""),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// checkClaim finds out whether the volume may be shown here, by the claim as this
// pass has read it, and takes it away from the host if not.
func (r *Reconciler) checkClaim(ctx context.Context, p *pass) error {
	single := writer.SingleWriter(p.attachment, p.volume)
	if replica(p.attachment) && (single || !wantsAttached(p.attachment)) {
		p.refused = writer.Refusal(r.o.Node, p.attachment, nil)
		return r.giveUp(ctx, p)
	}
	if !single {
		return nil
	}
	if !p.known {
		if err := r.readClaim(ctx, p); err != nil {
			return err
		}
	}
	if p.refused = writer.Refusal(r.o.Node, p.attachment, p.claim); p.refused == "" {
		return nil
	}
	return r.giveUp(ctx, p)
}

// giveUp takes from the host's sight what this DPU has no right to show. What
// is hidden already stays ready: it is what a replica is, and what a replica
// that is being promoted waits with.
func (r *Reconciler) giveUp(ctx context.Context, p *pass) error {
	p.message = p.refused
	if p.dpu.DeviceName == "" {
		return nil
	}
	seen, err := r.o.Providers.list(ctx)
	if e := seen.exposures[p.dpu.DeviceName]; err == nil && seen.complete && e.Hidden {
		p.see(e)
		return nil
	}
	if p.dpu.Attached {
		ctrl.LoggerFrom(ctx).Info("right to write lost, withdrawing", daemon.KeyEpoch, p.dpu.Epoch, "reason", p.refused)
	}
	if err := r.o.Providers.hide(ctx, p.dpu.DeviceName, ""); err != nil {
		return fmt.Errorf("%s; and it could not be taken away from the host: %w", p.refused, err)
	}
	p.withdrawn()
	return nil
}

// promote shows what stands ready, without the vendor: it has done its part.
// Nothing that stands ready is no error; the phases after it make everything. So
// do they with a device that has to grow first.
func (r *Reconciler) promote(ctx context.Context, p *pass) error {
	if p.refused != "" || !p.dpu.PreEmulated || p.volume == nil || p.small() {
		return nil
	}
	seen, _ := r.o.Providers.list(ctx)
	if !seen.exposures[p.dpu.DeviceName].Hidden {
		return nil
	}
	if err := r.confirm(ctx, p); err != nil || p.stop || p.refused != "" {
		return err
	}
	name := seen.provider[p.dpu.DeviceName]
	e, err := r.expose(ctx, p, r.o.Providers.get(name))
	if err != nil {
		return fmt.Errorf("show the replica: SNAP service %s on DPU %s: %w", name, r.o.Node, err)
	}
	p.see(e)
	p.stop = true
	return nil
}

// findVendor finds the volume's plugin, and checks that it makes such devices.
func (r *Reconciler) findVendor(ctx context.Context, p *pass) error {
	if p.volume == nil {
		p.wait(fmt.Sprintf("volume %s does not exist in the DPU cluster any more", volumeName(p.attachment)))
		p.again = missingRetry
		return nil
	}
	name := p.volume.Spec.Volume.StorageVendorPluginName
	if name == "" {
		p.wait(fmt.Sprintf("waits for snap-controller to choose a vendor for volume %s", p.volume.Name))
		p.again = missingRetry
		return nil
	}
	v, err := r.plugin(name)
	if err != nil {
		return err
	}
	if mode := volumeMode(p.volume); !v.can.Supports(mode) {
		return fmt.Errorf("vendor plugin %s on DPU %s makes no devices of volume mode %s: %w", name, r.o.Node, mode, provisioner.ErrPrecondition)
	}
	p.vendor = v
	return nil
}

// makeDevice has the vendor make the device. A device that is new is recorded
// before anything is done with it: the pass ends, the next one goes on.
func (r *Reconciler) makeDevice(ctx context.Context, p *pass) error {
	recorded := p.dpu.DeviceName
	if recorded != "" { // DPF's plugins serve GetDevice without announcing it
		_, err := p.vendor.GetDevice(ctx, p.volumeID, recorded)
		if err == nil {
			return nil
		}
		if !errors.Is(err, provisioner.ErrNotFound) && !errors.Is(err, provisioner.ErrUnsupported) {
			return r.lost(p.vendor.name, err)
		}
	}
	return r.createDevice(ctx, p)
}

func (r *Reconciler) createDevice(ctx context.Context, p *pass) error {
	recorded := p.dpu.DeviceName
	device, err := p.vendor.CreateDevice(ctx, openSpec(p))
	if err != nil {
		return r.lost(p.vendor.name, err)
	}
	if device == recorded {
		return nil
	}
	if recorded != "" {
		if err := r.o.Providers.hide(ctx, recorded, p.vendor.provider); err != nil {
			return fmt.Errorf("the vendor has made device %s in place of %s, which could not be taken away from the host: %w", device, recorded, err)
		}
		p.withdrawn()
	}
	p.dpu.DeviceName, p.dpu.Capacity = device, nil
	p.stop = true
	if p.message == "" || replica(p.attachment) {
		p.message = fmt.Sprintf("device %s is made, its function is being made ready", device)
	}
	return nil
}

// keepsReady reports whether the device is made ready without being shown.
func (p *pass) keepsReady() bool { return p.refused != "" && replica(p.attachment) }

// show exposes the device, if that is allowed at this very moment; that of a
// replica it makes ready.
func (r *Reconciler) show(ctx context.Context, p *pass) error {
	if p.refused != "" && !p.keepsReady() {
		return nil
	}
	if err := r.confirm(ctx, p); err != nil || p.stop || (p.refused != "" && !p.keepsReady()) {
		return err
	}
	provider := r.o.Providers.get(p.vendor.provider)
	e, err := r.expose(ctx, p, provider)
	if errors.Is(err, provisioner.ErrNotFound) {
		// The plugin knows the device, SNAP does not: it has restarted.
		if err := r.createDevice(ctx, p); err != nil || p.stop {
			return err
		}
		e, err = r.expose(ctx, p, provider)
	}
	if err != nil {
		p.dpu.Exhausted = r.exhausted(ctx, p, err)
		return fmt.Errorf("SNAP service %s on DPU %s: %w", p.vendor.provider, r.o.Node, err)
	}
	p.see(e)
	if p.keepsReady() {
		p.message = ""
	}
	return nil
}

// confirm reads attachment and claim from the API server, last before the
// exposure: what the cache shows may be over. If it is, the pass ends.
func (r *Reconciler) confirm(ctx context.Context, p *pass) error {
	if !r.permit(ctx, p) {
		return nil
	}
	now, found := &storagev1alpha1.VolumeAttachment{}, false
	var both errgroup.Group
	both.Go(func() (err error) {
		if found, err = kube.Find(ctx, r.o.Live, client.ObjectKeyFromObject(p.attachment), now); err != nil {
			return fmt.Errorf("confirm that the attachment still stands: %w: %w", provisioner.ErrUnavailable, err)
		}
		return nil
	})
	if writer.SingleWriter(p.attachment, p.volume) && !replica(p.attachment) {
		both.Go(func() error { return r.readClaim(ctx, p) })
	}
	if err := both.Wait(); err != nil {
		return err
	}
	if !found || !writer.Stands(p.attachment, now, p.dpu.DeviceName) {
		p.outdated()
		return nil
	}
	return r.checkClaim(ctx, p)
}

// exposeSpec is what SNAP is asked to show. The plugin was asked for a device of
// the volume's mode, so that says which kind it is: a file system is an fsdev.
func exposeSpec(p *pass) provisioner.ExposeSpec {
	spec := provisioner.ExposeSpec{
		Device:       p.dpu.DeviceName,
		Mode:         volumeMode(p.volume),
		VUID:         p.dpu.FuncVUID,
		FunctionType: provisioner.FunctionType(p.attachment.Spec.FunctionType),
		Hotplug:      p.attachment.Spec.HotplugFunction,
		PCIAddress:   p.dpu.PCIDeviceAddress,
		Hidden:       p.keepsReady(),
		Parameters:   controllerOptions(p.volume),
	}
	if p.dpu.BdevAttrs != nil {
		spec.NamespaceID, spec.UUID = p.dpu.BdevAttrs.NVMeNsID, p.dpu.BdevAttrs.NVMeUUID
	}
	return spec
}

// look corrects the status of a pass that has failed: a device that SNAP does
// not show is not attached, whatever was written before. If SNAP does not
// answer either, the last word stands.
func (r *Reconciler) look(ctx context.Context, p *pass) {
	if !p.dpu.Attached && !p.dpu.PreEmulated {
		return
	}
	if all, _ := r.o.Providers.list(ctx); all.complete {
		e := all.exposures[p.dpu.DeviceName]
		if !e.Visible {
			p.withdrawn()
		}
		p.dpu.PreEmulated = e.Hidden
	}
}

// Package dpu is the reconciler of the SNAP node driver: on one DPU it turns each
// VolumeAttachment into a device that the host sees, and back.
//
// A pass looks at one attachment and brings the DPU nearer to it: finalizer,
// claim, vendor device, exposure, status. A single-writer volume is exposed
// only under a WriterClaim that was read from the API server a moment before
// (pkg/writer); in doubt nothing is exposed. A device is taken away from the host
// without asking the API server or the vendor.
//
// It writes status.dpu and status.message of its own attachments, and nothing
// else. Truth is in the API and in what SNAP and the plugins list, never in
// memory. The packages below it own the attachments, the exposures, the devices,
// the patrol and the report of the DPU; they know nothing of its passes.
package dpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/pkg/writer"
)

// The waits between attempts at an attachment which cannot make progress.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Options of a Reconciler.
type Options struct {
	Attachments *attachments.Store
	// Queue holds the attachments that have to be looked at again although no
	// watch reports a change.
	Queue     *attachments.Queue
	Exposures *exposures.Exposures
	Devices   *devices.Devices
	// Journal remembers which epochs are over here.
	Journal *journal.Journal
	// Lease says whether this DPU may show single-writer volumes; nil: always.
	Lease Lease
	// Changed is told when what is free on this DPU may have changed.
	Changed func()
	// Timeout bounds each pass over an attachment as a whole; a call has
	// its own within it.
	Timeout time.Duration
	// Clock is the machine's if nil.
	Clock clock.PassiveClock
}

// Reconciler attaches volumes to this DPU's host.
type Reconciler struct {
	o      Options
	status status

	prerequisites prerequisites
	right         right
	fence         fence
	maker         maker
	shower        shower
	remover       remover
}

// New returns a reconciler; call SetupWithManager, or Reconcile in tests.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	r := &Reconciler{
		o:             o,
		status:        status{client: o.Attachments.DPU.Client, changed: o.Changed},
		prerequisites: prerequisites{attachments: o.Attachments, exposures: o.Exposures},
		right:         right{attachments: o.Attachments, exposures: o.Exposures, lease: o.Lease, journal: o.Journal},
		maker:         maker{node: o.Attachments.Node, devices: o.Devices, exposures: o.Exposures},
	}
	r.fence = fence{right: r.right, devices: o.Devices}
	r.shower = shower{right: r.right, maker: r.maker}
	r.remover = remover{attachments: o.Attachments, exposures: o.Exposures, devices: o.Devices, fence: r.fence, status: r.status}
	return r
}

// SetupWithManager watches the attachments and the claims; the manager's cache
// has to limit both to this DPU: the attachments by spec.nodeName, the claims by
// status.holder. A claim that this DPU ceases to hold is told as deleted.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("volumeattachment").
		For(&storagev1alpha1.VolumeAttachment{}).
		Watches(&moorv1alpha1.WriterClaim{}, handler.EnqueueRequestsFromMapFunc(r.attachmentsOf)).
		WatchesRawSource(source.Channel(r.o.Queue.Events(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(kube.Retrying(r))
	if err != nil {
		return fmt.Errorf("watch the attachments of DPU %s: %w", r.o.Attachments.Node, err)
	}
	return nil
}

// attachmentsOf maps a claim, which is named after its volume, to the attachments of
// that volume here. A replica is not concerned: when it is promoted it changes itself,
// right after the grant, and a pass that has begun meanwhile would only be in the way.
// One about which a claim that was lost waits for this DPU's word is.
func (r *Reconciler) attachmentsOf(ctx context.Context, o client.Object) []reconcile.Request {
	claim, ok := o.(*moorv1alpha1.WriterClaim)
	if !ok {
		return nil
	}
	r.fence.interrupt(claim)
	all, err := r.o.Attachments.Cached(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list attachments")
		return nil
	}
	return kube.Requests(slices.DeleteFunc(all, func(a storagev1alpha1.VolumeAttachment) bool {
		return a.VolumeName() != claim.Name || a.IsReplica() && writer.LostEpoch(r.o.Attachments.Node, &a, claim) == 0
	}))
}

// Reconcile makes one pass over an attachment.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	attachment := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.o.Attachments.DPU.Client, req.NamespacedName, attachment)
	if err != nil || !found || attachment.Spec.NodeName != r.o.Attachments.Node {
		return ctrl.Result{}, err
	}
	p := newPass(attachment)
	// One that is said to be shown, though it has lost the finalizer, is withdrawn all
	// the same: what stands in the status keeps the volume from every other DPU.
	released := p.deleting && !attachment.Status.DPU.Attached && !controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment)
	if released && !r.fence.awaited(ctx, attachment) {
		return ctrl.Result{}, nil
	}
	r.o.Exposures.Remember(&attachment.Status.DPU)
	log := ctrl.LoggerFrom(ctx).WithValues(daemon.KeyVolume, p.volumeName(), daemon.KeyDPU, r.o.Attachments.Node)
	ctx = ctrl.LoggerInto(ctx, log)
	unlock, ok := r.o.Exposures.Lock(p.volumeID, p.dpu.DeviceName)
	if !ok {
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	defer unlock()
	bounded, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if p.deleting {
		return r.finish(ctx, p, r.remover.detach(bounded, p))
	}
	r.o.Exposures.Begin(p.volumeID, cancel)
	defer r.o.Exposures.Finish(p.volumeID)
	return r.finish(ctx, p, r.attach(bounded, p))
}

// attach brings an attachment nearer to being shown to the host. If that fails,
// the status says what SNAP shows.
func (r *Reconciler) attach(ctx context.Context, p *pass) error {
	err := r.phases(ctx, p)
	if waiting := (*kube.Waiting)(nil); err != nil && !errors.As(err, &waiting) {
		p.correct(ctx, r.o.Exposures)
	}
	return err
}

// phases runs the phases in order until one waits or fails. The claim comes before
// all that may be out of order, so that a right that was lost is given up even
// when the vendor is down.
func (r *Reconciler) phases(ctx context.Context, p *pass) error {
	type phase func(context.Context, *pass) error
	run := func(phases ...phase) error {
		for _, phase := range phases {
			if err := phase(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
	before := r.prerequisites
	if err := run(r.fence.obey, before.awaitStorage, before.findVolume, before.protect, before.yield, r.right.checkClaim, before.stillStored); err != nil {
		return err
	}
	if shown, err := r.shower.showReady(ctx, p); shown || err != nil {
		return err
	}
	return run(r.maker.findPlugin, r.maker.make, r.maker.grow, r.open, r.shower.show)
}

// open opens the device under the epoch of the attachment, or gives that back.
func (r *Reconciler) open(ctx context.Context, p *pass) error {
	return r.fence.spent(ctx, p, r.maker.open(ctx, p))
}

// finish writes the status, even where the pass has used up its time, and then
// lets an attachment go whose device the pass has taken away, if the API server says
// the same of it. Where its answer tells of a deletion that came during the pass, the
// next pass takes the device away.
func (r *Reconciler) finish(ctx context.Context, p *pass, err error) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	drained := p.drain(r.o.Exposures)
	message, retry, failure := p.settle(err, r.o.Clock.Now())
	if drained > 0 && (retry == 0 || drained < retry) {
		retry = drained
	}
	if err := r.status.write(ctx, p, message); err != nil {
		return ctrl.Result{}, errors.Join(failure, err)
	}
	switch {
	case failure != nil:
	case p.contradicted():
		retry = staleRetry
	case p.deleting && err == nil:
		failure = kube.RemoveFinalizers(ctx, r.o.Attachments.DPU.Client, p.attachment, storagev1alpha1.FinalizerDPUAttachment)
	}
	return ctrl.Result{RequeueAfter: retry}, failure
}

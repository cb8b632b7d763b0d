package dpu

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The waits between attempts at an attachment which cannot make progress.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 15 * time.Second
	// missingRetry is how often a Volume that does not exist is looked for:
	// Volumes are not watched here, there are too many for each DPU.
	missingRetry = 5 * time.Second
	// staleRetry is when an attachment of which the cache is behind is looked
	// at again if the watch brings nothing by then.
	staleRetry = time.Second
	// grace is how old an attachment has to be before it is said what it waits
	// for: most never wait so long, and each word is a write.
	grace = 2 * time.Second
)

// eventQueue is how many attachments may wait to be looked at again after one
// round; the next round finds those that did not fit.
const eventQueue = 256

// Options of a Reconciler.
type Options struct {
	// Client reads the attachments of this DPU from its cache, and writes.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Node is this DPU's node name, Namespace where the attachments are.
	Node, Namespace string
	Plugins         Plugins
	Providers       *Providers
	// Timeout bounds each pass over an attachment as a whole; a call has
	// its own within it.
	Timeout time.Duration
	// Resync is how often what is shown is compared with what should be.
	Resync time.Duration
	// Host says what this DPU sees of its host; nil if it does not look.
	Host func() *moorv1alpha1.HostSight
	// Lease says whether this DPU may show single-writer volumes; nil: always.
	Lease Lease
	// Clock is the machine's if nil.
	Clock clock.WithTicker
	// Jitter spreads a period over the DPUs; nil means +-10 %, random.
	Jitter func(time.Duration) time.Duration
}

// Reconciler attaches volumes to this DPU's host.
type Reconciler struct {
	o       Options
	locks   keylock.Locks
	passes  underWay
	events  chan event.GenericEvent
	changed chan struct{}
	// firstSeen is when each orphan was seen first. It may be forgotten:
	// then the orphan lives a little longer.
	firstSeen map[orphan]time.Time
	// hurried asks State for its last answer with the host as it is now.
	hurried atomic.Bool
	last    atomic.Pointer[moorv1alpha1.DPUState]
	// complete is whether every SNAP service answered the last round.
	complete atomic.Bool
}

// New returns a reconciler; call SetupWithManager, or Reconcile in tests.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Jitter == nil {
		o.Jitter = jitter
	}
	return &Reconciler{
		o: o, events: make(chan event.GenericEvent, eventQueue), changed: make(chan struct{}, 1), firstSeen: map[orphan]time.Time{},
		passes: underWay{end: map[string]context.CancelFunc{}},
	}
}

// Changes tells, without a queue, that what State reports has changed.
func (r *Reconciler) Changes() <-chan struct{} { return r.changed }

// HostChanged asks for what is seen of the host to be reported at once, without
// waiting for plugins and services that may hang. It never blocks.
func (r *Reconciler) HostChanged() {
	r.hurried.Store(true)
	r.tellChange()
}

func (r *Reconciler) tellChange() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// SetupWithManager watches the attachments and the claims; the manager's cache
// has to limit both to this DPU: the attachments by spec.nodeName, the claims by
// status.holder. A claim that this DPU ceases to hold is told as deleted.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("volumeattachment").
		For(&storagev1alpha1.VolumeAttachment{}).
		Watches(&moorv1alpha1.WriterClaim{}, handler.EnqueueRequestsFromMapFunc(r.attachmentsOf)).
		WatchesRawSource(source.Channel(r.events, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(kube.Retrying(r))
	if err != nil {
		return fmt.Errorf("watch the attachments of DPU %s: %w", r.o.Node, err)
	}
	if err := mgr.Add(patrol{r}); err != nil {
		return fmt.Errorf("add the patrol of DPU %s: %w", r.o.Node, err)
	}
	return nil
}

// attachmentsOf maps a claim, which is named after its volume, to the attachments of
// that volume here. A replica is not concerned: when it is promoted it changes itself,
// right after the grant, and a pass that has begun meanwhile would only be in the way.
func (r *Reconciler) attachmentsOf(ctx context.Context, claim client.Object) []reconcile.Request {
	if c, ok := claim.(*moorv1alpha1.WriterClaim); ok {
		r.heed(c)
	}
	all, err := r.attachments(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list attachments")
		return nil
	}
	var out []reconcile.Request
	for i := range all {
		if volumeName(&all[i]) == claim.GetName() && !replica(&all[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return out
}

// attachments returns those of this DPU, from the cache.
func (r *Reconciler) attachments(ctx context.Context) ([]storagev1alpha1.VolumeAttachment, error) {
	return r.ours(ctx, r.o.Client)
}

// ours lists this DPU's attachments.
func (r *Reconciler) ours(ctx context.Context, from client.Reader, more ...client.ListOption) ([]storagev1alpha1.VolumeAttachment, error) {
	var list storagev1alpha1.VolumeAttachmentList
	if err := from.List(ctx, &list, append(more, client.InNamespace(r.o.Namespace))...); err != nil {
		return nil, fmt.Errorf("list the attachments of DPU %s: %w", r.o.Node, err)
	}
	var out []storagev1alpha1.VolumeAttachment
	for _, a := range list.Items {
		if a.Spec.NodeName == r.o.Node {
			out = append(out, a)
		}
	}
	return out, nil
}

// Reserved returns the PCI addresses at which the host knows the volumes of
// this DPU, with the device of each: no other volume may be given them.
func (r *Reconciler) Reserved(ctx context.Context) map[string]string {
	all, err := r.attachments(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list reserved functions")
	}
	out := map[string]string{}
	for _, a := range all {
		if a.Status.DPU.PCIDeviceAddress != "" {
			out[a.Status.DPU.PCIDeviceAddress] = a.Status.DPU.DeviceName
		}
	}
	return out
}

// Functions returns the VUIDs of the functions that the devices of this DPU were
// given, by device, as far as they are on record.
func (r *Reconciler) Functions(ctx context.Context) map[string]string {
	all, err := r.attachments(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list functions on record")
	}
	out := map[string]string{}
	for _, a := range all {
		if a.Status.DPU.FuncVUID != "" {
			out[a.Status.DPU.DeviceName] = a.Status.DPU.FuncVUID
		}
	}
	return out
}

// Reconcile makes one pass over an attachment.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	attachment := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.o.Client, req.NamespacedName, attachment)
	if err != nil || !found || attachment.Spec.NodeName != r.o.Node {
		return ctrl.Result{}, err
	}
	deleting := !attachment.DeletionTimestamp.IsZero()
	if deleting && !controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment) {
		return ctrl.Result{}, nil
	}
	log := ctrl.LoggerFrom(ctx).WithValues(daemon.KeyVolume, volumeName(attachment), daemon.KeyDPU, r.o.Node)
	ctx = ctrl.LoggerInto(ctx, log)
	p := newPass(attachment)
	unlock, ok := r.lock(p.keys()...)
	if !ok {
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	defer unlock()
	bounded, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if deleting {
		err = r.detach(bounded, p)
	} else {
		r.passes.begin(p.volumeID, cancel)
		defer r.passes.finish(p.volumeID)
		if err = r.attach(bounded, p); err == nil {
			p.keepBack(r.o.Clock.Now())
		}
	}
	again := p.again
	return ctrl.Result{RequeueAfter: again}, r.finish(ctx, p, err)
}

// finish writes the status, even where the pass has used up its time, and then
// lets an attachment go whose device is gone. It returns the pass's error.
func (r *Reconciler) finish(ctx context.Context, p *pass, failure error) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if err := r.report(ctx, p, failure); err != nil {
		return errors.Join(failure, err)
	}
	if failure == nil && !p.attachment.DeletionTimestamp.IsZero() {
		return kube.RemoveFinalizers(ctx, r.o.Client, p.attachment, storagev1alpha1.FinalizerDPUAttachment)
	}
	return failure
}

// lock takes all keys or none. It keeps the patrol away from the volume and
// the device that a pass works on.
func (r *Reconciler) lock(keys ...string) (unlock func(), ok bool) {
	var held []func()
	release := func() {
		for _, u := range held {
			u()
		}
	}
	for _, key := range keys {
		u, ok := r.locks.TryLock(key)
		if !ok {
			release()
			return nil, false
		}
		held = append(held, u)
	}
	return release, true
}

// readClaim reads the volume's claim for this pass.
func (r *Reconciler) readClaim(ctx context.Context, p *pass) error {
	claim, err := r.liveClaim(ctx, volumeName(p.attachment))
	p.claim, p.known = claim, err == nil
	return err
}

// liveClaim reads a volume's claim from the API server; nil if there is none.
func (r *Reconciler) liveClaim(ctx context.Context, volume string) (*moorv1alpha1.WriterClaim, error) {
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.o.Live, types.NamespacedName{Namespace: r.o.Namespace, Name: volume}, claim)
	if err != nil {
		return nil, fmt.Errorf("find out who may write volume %s: %w: %w", volume, provisioner.ErrUnavailable, err)
	}
	if !found {
		return nil, nil
	}
	return claim, nil
}

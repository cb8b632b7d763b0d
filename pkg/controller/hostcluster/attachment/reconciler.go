// Package attachment carries a DPUVolumeAttachment to the DPU cluster as a
// VolumeAttachment, grants the right to write where the volume has a single
// writer, and carries what the DPU shows back into the status.
package attachment

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// Reconciler keeps one DPUVolumeAttachment and its VolumeAttachment in step.
type Reconciler struct {
	Clusters hostcluster.Clusters
	// Users says who uses a volume.
	Users *Users
	// NodesAsk: nodes ask for volumes by themselves. If not, this installation
	// attaches by the controller, and what a node asks for is refused.
	NodesAsk bool
	// Recorder tells of promotions on the volume. Nil: no events.
	Recorder record.EventRecorder
	// Silent tells whether a DPU has not been heard for the whole timeout. Nil: none is.
	Silent func(dpu string) bool
	// Clock is the machine's if nil.
	Clock clock.PassiveClock

	// made are the attachments whose VolumeAttachments were made within kube.CacheLag and have
	// not been shown by the cache yet: to make one again would be refused.
	made kube.Recent[struct{}]
	// fenced are the attachments from which the right to write is being taken, and since when.
	fenced kube.Recent[time.Time]
}

// SetupWithManager watches attachments, volumes, nodes and who uses them here,
// and VolumeAttachments and WriterClaims there. watches.go says what of them counts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	remote := r.Clusters.DPU.Cache
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpuvolumeattachment").
		For(&storagev1alpha1.DPUVolumeAttachment{}).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.ofRival), builder.WithPredicates(rivalry)).
		Watches(&storagev1alpha1.DPUVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume), builder.WithPredicates(volumeChanged)).
		Watches(&moorv1alpha1.DPUStorageNode{}, handler.EnqueueRequestsFromMapFunc(r.ofHost), builder.WithPredicates(dpuChanged)).
		Watches(&moorv1alpha1.DPUStorageNode{}, handler.EnqueueRequestsFromMapFunc(r.ofTold), builder.WithPredicates(toldChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofUser), builder.WithPredicates(userChanged)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(bindingChanged)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(serviceChanged)).
		WatchesRawSource(source.Kind(remote, &storagev1alpha1.VolumeAttachment{},
			hostcluster.ToOwner[*storagev1alpha1.VolumeAttachment](storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment))).
		WatchesRawSource(source.Kind(remote, &moorv1alpha1.WriterClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofClaim), claimChanged)).
		Complete(kube.Retrying(r))
}

// Reconcile brings the VolumeAttachment and the status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	attachment, err := r.find(ctx, req.NamespacedName)
	if err != nil || attachment == nil {
		return ctrl.Result{}, err
	}
	if !attachment.DeletionTimestamp.IsZero() {
		return r.remove(ctx, attachment)
	}
	mirror, left, err := r.mirror(ctx, attachment)
	if err != nil || left > 0 {
		return ctrl.Result{RequeueAfter: left}, err
	}
	if _, err := kube.AddFinalizer(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment); err != nil {
		return ctrl.Result{}, err
	}
	p := &pass{attachment: attachment, mirror: mirror}
	now := r.clock().Now()
	outcome := kube.Settle(r.carry(ctx, p), now)
	if outcome.Err == nil && p.orphaned {
		return ctrl.Result{}, kube.DeleteExact(ctx, r.Clusters.Host.Client, attachment)
	}
	if outcome.Err == nil && p.outdated {
		return ctrl.Result{RequeueAfter: outcome.RetryAfter}, nil
	}
	if outcome.Waits() {
		p.waiting = outcome.Message
	}
	if after := max(p.statusAfter(now), p.fenced); outcome.Err == nil && after > 0 {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	before := *attachment.Status.DeepCopy()
	if _, statusErr := kube.PatchStatus(ctx, r.Clusters.Host.Client, attachment, func(a *storagev1alpha1.DPUVolumeAttachment) {
		report(a, p, outcome)
	}); statusErr != nil {
		return ctrl.Result{}, statusErr
	}
	r.tellAttached(p, before, attachment.Status)
	r.tellPath(p, before.Conditions, attachment.Status.Conditions)
	return ctrl.Result{RequeueAfter: outcome.RetryAfter}, outcome.Err
}

// find reads an attachment; nil if there is none, or the controller of another DPU cluster sees to it.
func (r *Reconciler) find(ctx context.Context, key client.ObjectKey) (*storagev1alpha1.DPUVolumeAttachment, error) {
	attachment := &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, key, attachment)
	if err != nil || !found {
		return nil, err
	}
	whose, err := r.Clusters.OfVolume(ctx, attachment.Status.DPUCluster, client.ObjectKey{Namespace: key.Namespace, Name: attachment.Spec.DPUVolumeName})
	if err != nil || whose == hostcluster.Theirs {
		return nil, err
	}
	return attachment, nil
}

// mirror is the VolumeAttachment of an attachment, nil if there is none; or for how long
// one is waited for that was just made.
func (r *Reconciler) mirror(ctx context.Context, a *storagev1alpha1.DPUVolumeAttachment) (*storagev1alpha1.VolumeAttachment, time.Duration, error) {
	mirror := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(a.Name), mirror)
	if err != nil {
		return nil, 0, err
	}
	if found {
		r.made.Forget(a.UID)
		return mirror, 0, nil
	}
	_, left := r.made.Get(a.UID, r.clock().Now())
	return nil, left, nil
}

// pass is what one pass knows of an attachment.
type pass struct {
	attachment *storagev1alpha1.DPUVolumeAttachment
	mirror     *storagev1alpha1.VolumeAttachment
	volume     *storagev1alpha1.DPUVolume
	dpu        string
	// claim is the volume's, if it was read before the mirror was made.
	claim *moorv1alpha1.WriterClaim
	// sound: the mirror is there, ours and to stay; what it says counts.
	sound bool
	// waiting is what the phases ended waiting for; "" if they did not.
	waiting string
	// fenced is how long it is not told yet that the right to write is being taken.
	fenced time.Duration
	// going: the mirror is on its way out, and this attachment still stands.
	going bool
	// used: a pod of the node that asks uses the volume.
	used bool
	// early: it is a replica to promote before its host asks for it.
	early bool
	// outdated: the API server says that it goes, and the cache does not.
	outdated bool
	// orphaned: it was begun for a node that will not take it back.
	orphaned bool
	// node is the host's; nil if it was not looked at.
	node *moorv1alpha1.DPUStorageNode
}

func (p *pass) replica() bool { return p.attachment.Spec.Role == storagev1alpha1.RoleReplica }

// single reports whether one node at a time may write the volume.
func (p *pass) single() bool { return provisioner.SingleNode(p.volume.Spec.AccessModes) }

// holder is what the right to write is granted to.
func (p *pass) holder() writer.Holder {
	h := writer.Holder{DPU: p.dpu, Attachment: p.attachment.Name}
	if p.mirror != nil {
		h.UID = p.mirror.UID
	}
	return h
}

// hidden reports whether it is to be made ready, and not to be shown.
func (p *pass) hidden() bool {
	return p.replica() && !p.begun() && p.attachment.Spec.Warmth != storagev1alpha1.WarmthAttached
}

// statusAfter is how long the status can stay unwritten: until the attachment is
// older than kube.StatusGrace, unless it has arrived or waits for something that
// users have to learn of. That one is shown no longer is written at once.
func (p *pass) statusAfter(now time.Time) time.Duration {
	seen := observe(p)
	was := p.attachment.Status.Warmth
	if p.waiting != "" || seen.exhausted || seen.ready(p.hidden()) || was == storagev1alpha1.WarmthAttached || was == storagev1alpha1.WarmthPreEmulated {
		return 0
	}
	return kube.GraceLeft(p.attachment.CreationTimestamp.Time, now)
}

func (r *Reconciler) clock() clock.PassiveClock {
	if r.Clock == nil {
		return clock.RealClock{}
	}
	return r.Clock
}

// carry walks the phases in order; a phase that fails or waits ends the walk.
func (r *Reconciler) carry(ctx context.Context, p *pass) error {
	for _, phase := range []func(context.Context, *pass) error{r.checkRequest, r.findVolume, checkWarmth, r.findDPU, r.recordCluster, r.ensureMirror, r.warm, r.promoteEarly, r.grant} {
		if err := phase(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) findVolume(ctx context.Context, p *pass) error {
	key := client.ObjectKey{Namespace: p.attachment.Namespace, Name: p.attachment.Spec.DPUVolumeName}
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, key, volume)
	if err != nil {
		return err
	}
	p.volume = volume
	switch {
	case !found:
		return kube.WaitFor("DPUVolume %s does not exist in namespace %s", key.Name, key.Namespace)
	case !volume.DeletionTimestamp.IsZero():
		return kube.WaitFor("DPUVolume %s is being deleted", key.Name)
	case volume.Status.Phase != storagev1alpha1.DPUVolumeBound:
		return kube.WaitFor("DPUVolume %s is not bound yet", key.Name)
	}
	return nil
}

// checkWarmth refuses a replica that its host would see although another host
// has the right to write.
func checkWarmth(_ context.Context, p *pass) error {
	if p.replica() && p.attachment.Spec.Warmth == storagev1alpha1.WarmthAttached && p.single() {
		return kube.WaitFor("volume %s has a single writer, so a replica of it stays hidden from its host until it is promoted: warmth %s is for ReadWriteMany and ReadOnlyMany; use %s",
			p.volume.Name, storagev1alpha1.WarmthAttached, storagev1alpha1.WarmthPreEmulated)
	}
	return nil
}

func (r *Reconciler) findDPU(ctx context.Context, p *pass) error {
	node := &moorv1alpha1.DPUStorageNode{}
	name := p.attachment.Spec.DPUNodeName
	found, err := kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKey{Name: name}, node)
	switch {
	case err != nil:
		return err
	case !found:
		return kube.WaitFor("%s", noDPU(name, r.Clusters))
	case node.Spec.DPUName == "":
		return kube.WaitFor("spec.dpuName of DPUStorageNode %s is empty: set it to the name of that host's DPU in the DPU cluster", name)
	}
	p.dpu, p.node = node.Spec.DPUName, node
	return r.unshared(ctx, p)
}

// noDPU says that a host has none, as far as this controller sees.
func noDPU(host string, c hostcluster.Clusters) string {
	if c.Several() {
		return fmt.Sprintf("no DPUStorageNode says that node %s has a DPU in DPU cluster %s, in which the volume is alone: use it on a node that has, or set spec.dpuCluster and spec.dpuName of DPUStorageNode %s",
			host, c.DPUCluster, host)
	}
	return fmt.Sprintf("node %s has no DPUStorageNode: does it have a DPU, and does snap-csi-plugin run there?", host)
}

// recordCluster puts on record in which of several DPU clusters the attachment is carried out,
// before anything is made for it there: to read it later does not need the volume.
func (r *Reconciler) recordCluster(ctx context.Context, p *pass) error {
	if !r.Clusters.Several() || p.attachment.Status.DPUCluster != "" {
		return nil
	}
	if r.Clusters.Volume(p.volume) != hostcluster.Ours {
		return kube.WaitFor("DPUVolume %s is bound, and does not say any more in which DPU cluster: set status.state.dpuCluster of it again", p.volume.Name)
	}
	_, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, p.attachment, func(a *storagev1alpha1.DPUVolumeAttachment) { a.Status.DPUCluster = r.Clusters.DPUCluster })
	return err
}

// unshared waits while another host names the DPU: one of the two would see, and write, what is
// the other's. What has been granted stays.
func (r *Reconciler) unshared(ctx context.Context, p *pass) error {
	if p.mirror != nil && p.mirror.Spec.Epoch != 0 {
		return nil
	}
	shared, err := nodehealth.Shared(ctx, r.Clusters.Host.Client, p.dpu)
	if shared != "" {
		return kube.WaitFor("%s", shared)
	}
	return err
}

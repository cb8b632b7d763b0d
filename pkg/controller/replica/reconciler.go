package replica

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
)

// Options say what the reconciler works on and how.
type Options struct {
	// Host has the indexes of index.Replicas. It is read live before a replica is made.
	Host kube.Cluster
	// Clock tells how long a primary is gone and a node in trouble.
	Clock clock.PassiveClock
	// Namespace of the volumes.
	Namespace string
	// Driver is the name of the CSI driver, which leads from a volume to its
	// pods.
	Driver string
	// Reserve is how many functions replicas leave free on each DPU.
	Reserve int
	// ReleaseAfter is how long replicas outlive the last primary of a volume
	// that does not say it itself.
	ReleaseAfter time.Duration
	// Patience is how long a node may be in trouble before its replicas are
	// replaced.
	Patience time.Duration
	// TopologyKey is the node label over whose values replicas are spread,
	// unless the pod names another.
	TopologyKey string
}

// Reconciler keeps the replicas of one volume.
type Reconciler struct {
	Options
}

// Reconcile makes and removes replicas until there are as many as are wanted,
// where they are of use. A volume of another driver is left to that driver's
// controller, which knows its pods.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if others, err := r.users().OfOthers(ctx, req.Name); others || err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var p plan
	switch want := s.wanted(); {
	case want == 0:
		p = plan{remove: s.standing(), state: s.leaving()}
	case s.primary() == nil:
		if p, err = r.release(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	default:
		if p, err = r.place(ctx, s, want); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.apply(ctx, s, p); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}

// plan is what is to be done about a volume.
type plan struct {
	// remove are replicas of ours that are to go.
	remove []*storagev1alpha1.DPUVolumeAttachment
	// warm are replicas of ours that are to be kept with another warmth.
	warm []*storagev1alpha1.DPUVolumeAttachment
	// add are nodes that are to get one.
	add []string
	// state is what the volume's status is to say.
	state *storagev1alpha1.ReplicaState
	// again is when to look again without cause; 0 never.
	again time.Duration
}

func (r *Reconciler) apply(ctx context.Context, s *pass, p plan) error {
	for _, a := range p.remove {
		if err := r.remove(ctx, a); err != nil {
			return err
		}
	}
	for _, a := range p.warm {
		if err := r.warm(ctx, a, s.warmth()); err != nil {
			return err
		}
	}
	if err := r.add(ctx, s, p); err != nil {
		return err
	}
	if s.volume == nil || !s.volume.DeletionTimestamp.IsZero() {
		return nil
	}
	_, err := kube.PatchStatus(ctx, r.Host.Client, s.volume, func(v *storagev1alpha1.DPUVolume) { v.Status.Replicas = p.state })
	return kube.IgnoreNotFound(err)
}

// remove deletes a replica as it was read: one that was promoted since is
// in use and stays.
func (r *Reconciler) remove(ctx context.Context, a *storagev1alpha1.DPUVolumeAttachment) error {
	err := kube.DeleteExact(ctx, r.Host.Client, a)
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("replica removed", daemon.KeyAttachment, a.Name, daemon.KeyNode, a.Spec.DPUNodeName)
	}
	return err
}

// warm has a replica kept as the volume's replication says now.
func (r *Reconciler) warm(ctx context.Context, a *storagev1alpha1.DPUVolumeAttachment, warmth storagev1alpha1.Warmth) error {
	_, err := kube.Patch(ctx, r.Host.Client, a.DeepCopy(), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Warmth = warmth })
	if kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("keep replica %s %s: %w", a.Name, warmth, err)
	}
	return nil
}

// add makes the replicas that are planned. How many there are is asked of the
// API server itself: the cache may not show yet what the last pass made.
func (r *Reconciler) add(ctx context.Context, s *pass, p plan) error {
	if len(p.add) == 0 {
		return nil
	}
	var live storagev1alpha1.DPUVolumeAttachmentList
	err := r.Host.Live.List(ctx, &live, client.InNamespace(r.Namespace), client.MatchingLabels{storagev1alpha1.LabelReplicaOf: kube.LabelValue(s.name)})
	if err != nil {
		return fmt.Errorf("list the replicas of volume %s: %w", s.name, err)
	}
	shares, replicas := map[string]bool{}, map[string]bool{}
	for _, a := range s.attachments {
		shares[a.Name] = true
	}
	for i := range live.Items {
		a := &live.Items[i]
		shares[a.Name] = true
		if isOurs(a) && a.DeletionTimestamp.IsZero() {
			replicas[a.Name] = true
		}
	}
	for _, node := range p.add {
		a := s.replica(node)
		if len(shares) >= int(s.volume.Spec.Replication.MaxShares) || len(replicas) >= int(p.state.Wanted) {
			return nil
		}
		if shares[a.Name] {
			continue
		}
		made, err := kube.Create(ctx, r.Host.Client, a)
		if err != nil {
			return err
		}
		if made {
			ctrl.LoggerFrom(ctx).Info("replica made", daemon.KeyAttachment, a.Name, daemon.KeyNode, node)
		}
		shares[a.Name], replicas[a.Name] = true, true
	}
	return nil
}

// replica is the attachment of a replica on a node: of the primary's kind.
func (s *pass) replica(node string) *storagev1alpha1.DPUVolumeAttachment {
	as := s.primary().Spec
	return &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: kube.AttachmentName(node, s.name), Namespace: s.volume.Namespace,
			Labels:     map[string]string{storagev1alpha1.LabelReplicaOf: kube.LabelValue(s.name)},
			Finalizers: []string{storagev1alpha1.FinalizerDPUVolumeAttachment}, // snap-host-controller would add it
		},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: node, DPUVolumeName: s.name, Role: storagev1alpha1.RoleReplica,
			FunctionTypeConfig: as.FunctionTypeConfig, ReadOnly: as.ReadOnly, Warmth: s.warmth(),
		},
	}
}

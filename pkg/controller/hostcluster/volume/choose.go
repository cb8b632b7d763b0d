package volume

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// firstChoice is for how long a volume is left to the DPU cluster that is its first choice. One
// that is away does not choose.
const firstChoice = 5 * time.Second

// unableAgain is when it is looked at again whether a volume can be made: hosts and sources that come are not
// watched for it.
const unableAgain = 30 * time.Second

// ours reports whether the volume is in the DPU cluster that is served here. One that is in none yet
// can get this one: the API server lets one of several controllers put itself on record. The pass
// that makes something comes once the cache shows it. after is when to look again; 0: what changes is
// watched.
func (r *Reconciler) ours(ctx context.Context, v *storagev1alpha1.DPUVolume) (ours bool, after time.Duration, err error) {
	switch whose := r.Clusters.Volume(v); {
	case !r.Clusters.Several():
		return true, 0, nil
	case whose == hostcluster.Ours && !r.Clusters.Recorded(v): // its status was lost
		return false, 0, r.record(ctx, v)
	case whose == hostcluster.Ours:
		return true, 0, nil
	case whose == hostcluster.Theirs:
		return false, 0, r.takeUp(ctx, v)
	case v.Status.Phase == storagev1alpha1.DPUVolumeBound:
		return false, 0, r.unchosen(ctx, v, "it is bound, and not on record any more in which DPU cluster: set status.state.dpuCluster, by name and namespace of the DPUCluster")
	case !v.DeletionTimestamp.IsZero():
		return false, 0, r.letGo(ctx, v) // nothing was made of it
	}
	after, err = r.choose(ctx, v)
	return false, after, err
}

// takeUp puts this DPU cluster on record for a volume that was made here while there was no other. One that
// is in none of them says so.
func (r *Reconciler) takeUp(ctx context.Context, v *storagev1alpha1.DPUVolume) error {
	if !r.Clusters.FromAlone(v) {
		return nil
	}
	mirror := &storagev1alpha1.Volume{}
	found, err := r.Clusters.OwnMirror(ctx, v, mirror)
	switch {
	case err != nil:
		return err
	case found && hostcluster.MadeByDPF(mirror, v): // DPF copies it to all DPU clusters, and its record is right
		return r.unchosen(ctx, v, fmt.Sprintf("DPF put it on record in DPU cluster %s/%s: waiting for the snap-host-controller of that one",
			v.Status.State.DPUCluster.Namespace, v.Status.State.DPUCluster.Name))
	case found:
		return r.record(ctx, v)
	case v.Status.Phase != storagev1alpha1.DPUVolumeBound: // it has just been put on record
		return nil
	}
	return r.unchosen(ctx, v, fmt.Sprintf("it was made while there was one DPU cluster, %s, and none of several has its Volume: start the snap-host-controller of the one that was there, or restore the Volume",
		v.Status.State.DPUCluster.Name))
}

// choose puts this DPU cluster on record for a volume that is in none, if it can be made here, and says when to
// look again.
func (r *Reconciler) choose(ctx context.Context, v *storagev1alpha1.DPUVolume) (after time.Duration, err error) {
	able, first, err := r.able(ctx, v)
	switch left := firstChoice - r.clock().Since(v.CreationTimestamp.Time); {
	case err != nil:
		return 0, err
	case !able:
		return unableAgain, r.unchosen(ctx, v, fmt.Sprintf("waiting for a DPU cluster in which DPUStoragePolicy %s is Valid, as its conditions say of each, and which has the DPUs, or the source, that the volume asks for",
			v.Spec.DPUStoragePolicyName))
	case !first && left > 0:
		return left, nil
	}
	// The caches know nothing of a DPU cluster that has just gone away: its API server has to answer.
	if _, err := r.Clusters.OwnMirror(ctx, v, &storagev1alpha1.Volume{}); err != nil {
		return 0, err
	}
	return 0, r.record(ctx, v)
}

// record puts on record that the volume is in the DPU cluster that is served here.
func (r *Reconciler) record(ctx context.Context, v *storagev1alpha1.DPUVolume) error {
	cluster := r.Clusters.Reference()
	_, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, v, func(v *storagev1alpha1.DPUVolume) {
		if v.Status.State == nil {
			v.Status.State = &storagev1alpha1.DPUVolumeState{}
		}
		v.Status.State.DPUCluster = &cluster
	})
	return err
}

// unchosen says what a volume waits for that is in no DPU cluster. The controllers of all of them say the
// same, so that none writes over another.
func (r *Reconciler) unchosen(ctx context.Context, v *storagev1alpha1.DPUVolume, message string) error {
	_, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, v, func(v *storagev1alpha1.DPUVolume) {
		conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
		v.Status.ObservedGeneration = v.Generation
		if v.Status.Phase == "" {
			v.Status.Phase = storagev1alpha1.DPUVolumePending
		}
		conditions.False(storagev1alpha1.ConditionDPUVolumeReconciled, storagev1alpha1.ReasonPending, message)
		conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeReconciled)
	})
	return kube.IgnoreNotFound(err)
}

// able reports whether a volume can be made in the DPU cluster that is served here, and whether that is
// the first choice.
func (r *Reconciler) able(ctx context.Context, v *storagev1alpha1.DPUVolume) (able, first bool, err error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	key := client.ObjectKey{Namespace: v.Namespace, Name: v.Spec.DPUStoragePolicyName}
	if _, err := kube.Find(ctx, r.Clusters.Host.Client, key, policy); err != nil {
		return false, false, err
	}
	first, usable := r.Clusters.First(policy.Status.Conditions, storagev1alpha1.ConditionValid, v.UID)
	if !usable {
		return false, false, nil
	}
	if v.Spec.Source != nil {
		here, err := r.hasSource(ctx, v)
		return here, here, err
	}
	if len(v.Spec.AccessibleFrom) == 0 {
		return true, first, nil
	}
	for i, place := range v.Spec.AccessibleFrom {
		here, err := r.has(ctx, place)
		if err != nil || here {
			return here, i == 0, err
		}
	}
	return false, false, nil
}

// hasSource reports whether what the volume begins as a copy of is in the DPU cluster that is served here.
func (r *Reconciler) hasSource(ctx context.Context, v *storagev1alpha1.DPUVolume) (bool, error) {
	recorded, of := "", v.Spec.Source.DPUVolumeName
	if name := v.Spec.Source.DPUVolumeSnapshotName; name != "" {
		s := &moorv1alpha1.DPUVolumeSnapshot{}
		if _, err := kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKey{Namespace: v.Namespace, Name: name}, s); err != nil {
			return false, err
		}
		recorded, of = s.Status.DPUCluster, s.Spec.DPUVolumeName
	}
	whose, err := r.Clusters.OfVolume(ctx, recorded, client.ObjectKey{Namespace: v.Namespace, Name: of})
	return whose == hostcluster.Ours, err
}

// has reports whether a place is in the DPU cluster that is served here: it says so, or names a DPU
// of a host that is.
func (r *Reconciler) has(ctx context.Context, place map[string]string) (bool, error) {
	if _, said := place[moorv1alpha1.TopologyDPUCluster]; said {
		return len(r.Clusters.Wanted([]map[string]string{place})) > 0, nil
	}
	dpu, said := place[moorv1alpha1.TopologyDPU]
	if !said {
		return true, nil // the DPU cluster itself judges
	}
	var hosts moorv1alpha1.DPUStorageNodeList
	if err := r.Clusters.Host.Client.List(ctx, &hosts, client.MatchingFields{index.DPUStorageNodeByPlace: dpu}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the hosts of DPU %s: %w", dpu, err)
	}
	return len(hosts.Items) > 0, nil
}

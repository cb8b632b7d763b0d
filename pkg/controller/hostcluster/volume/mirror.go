package volume

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// mirrorOf is the Volume that a DPUVolume asks for.
func mirrorOf(volume *storagev1alpha1.DPUVolume, c hostcluster.Clusters) *storagev1alpha1.Volume {
	parameters := maps.Clone(volume.Spec.Parameters)
	if parameters == nil {
		parameters = map[string]string{}
	}
	parameters[storagev1alpha1.ParameterPolicy] = volume.Spec.DPUStoragePolicyName
	out := &storagev1alpha1.Volume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.Name, Namespace: c.TargetNamespace,
			Labels:      map[string]string{storagev1alpha1.LabelOwnerUID: string(volume.UID)},
			Annotations: map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolume: hostcluster.OwnerValue(volume)},
		},
		Spec: storagev1alpha1.VolumeSpec{
			Request: storagev1alpha1.VolumeRequest{
				AccessModes: slices.Clone(volume.Spec.AccessModes),
				VolumeMode:  volume.Spec.VolumeMode,

				AccessibleFrom:    c.Wanted(volume.Spec.AccessibleFrom),
				MutableParameters: maps.Clone(volume.Spec.MutableParameters),
			},
			StorageParameters: parameters,
		},
	}
	out.Spec.Request.Source = sourceOf(volume)
	if volume.Spec.Replication != nil {
		out.Spec.Request.MaxShares = volume.Spec.Replication.MaxShares
	}
	if q, ok := volume.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
		out.Spec.Request.CapacityRange.Request = &q
	}
	if q, ok := volume.Spec.Resources.Limits[corev1.ResourceStorage]; ok {
		out.Spec.Request.CapacityRange.Limit = &q
	}
	return out
}

// sourceOf is what a DPUVolume begins as a copy of, as the DPU cluster names
// it, where mirrors have the names of their owners.
func sourceOf(volume *storagev1alpha1.DPUVolume) *storagev1alpha1.CopySource {
	if volume.Spec.Source == nil {
		return nil
	}
	return &storagev1alpha1.CopySource{VolumeName: volume.Spec.Source.DPUVolumeName, SnapshotName: volume.Spec.Source.DPUVolumeSnapshotName}
}

// pass is what one pass knows of a volume.
type pass struct {
	// mirror is the Volume, nil if it is not there or not ours.
	mirror *storagev1alpha1.Volume
	// outcome is what carrying it came to.
	outcome kube.Outcome
	// paths are the ways to its storage.
	paths paths
}

// report rebuilds the status.
func report(v *storagev1alpha1.DPUVolume, p pass, c hostcluster.Clusters) {
	conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
	v.Status.ObservedGeneration = v.Generation
	if v.Status.Phase == "" {
		v.Status.Phase = storagev1alpha1.DPUVolumePending
	}
	if p.mirror != nil {
		v.Status.State = stateOf(v, p.mirror, c)
		if p.mirror.Status.State == storagev1alpha1.VolumeAvailable {
			v.Status.Phase = storagev1alpha1.DPUVolumeBound
		}
	}
	message := ""
	if p.outcome.Waits() {
		message = p.outcome.Message
	}
	if p.mirror != nil {
		message = p.mirror.Status.Message
		if message == "" {
			message = "waiting for snap-controller in the DPU cluster"
		}
	}
	scheduled := v.Status.State != nil && v.Status.State.SelectedDPUStorageVendorName != "" && v.Status.State.StorageVendorPluginName != ""
	conditions.Whether(storagev1alpha1.ConditionScheduled, scheduled, message)
	conditions.Whether(storagev1alpha1.ConditionBound, v.Status.Phase == storagev1alpha1.DPUVolumeBound, message)
	if p.mirror != nil && v.Status.Phase == storagev1alpha1.DPUVolumeBound {
		tellChanges(conditions, v, p.mirror)
		tellHealth(conditions, p.mirror.Status.Message)
	}
	tellAccess(conditions, v, p.mirror)
	p.paths.tell(conditions)
	conditions.Reconciled(storagev1alpha1.ConditionDPUVolumeReconciled, p.outcome)
	conditions.Summarize(storagev1alpha1.ConditionReady,
		storagev1alpha1.ConditionDPUVolumeReconciled, storagev1alpha1.ConditionScheduled, storagev1alpha1.ConditionBound)
}

func stateOf(v *storagev1alpha1.DPUVolume, m *storagev1alpha1.Volume, c hostcluster.Clusters) *storagev1alpha1.DPUVolumeState {
	parameters := maps.Clone(m.Spec.StoragePolicyParameters)
	if parameters == nil {
		parameters = map[string]string{}
	}
	maps.Copy(parameters, v.Spec.Parameters)
	source := m.Spec.Volume
	cluster := c.Reference()
	state := &storagev1alpha1.DPUVolumeState{
		DPUCluster:                   &cluster,
		Parameters:                   parameters,
		SelectedDPUStorageVendorName: source.StorageVendorName,
		StorageVendorPluginName:      source.StorageVendorPluginName,
		StorageClassName:             source.CSIReference.StorageClassName,
		CSIDriverName:                source.CSIReference.CSIDriverName,
	}
	if ref := source.CSIReference.PVCRef; ref != nil && ref.Name != "" {
		state.PersistentVolumeClaimRef = &storagev1alpha1.ObjectReference{Name: ref.Name, Namespace: c.TargetNamespace}
	}
	if m.Status.State == storagev1alpha1.VolumeAvailable {
		state.VolumeInfo = &storagev1alpha1.VolumeInfo{
			AccessModes: source.AccessModes, VolumeMode: m.Spec.Request.VolumeMode, VolumeAttributes: source.VolumeAttributes,
			MutableParameters: source.MutableParameters, AccessibleTopology: c.Places(source.AccessibleTopology),
		}
		if source.Capacity != nil {
			state.VolumeInfo.Capacity = corev1.ResourceList{corev1.ResourceStorage: *source.Capacity}
		}
	}
	return state
}

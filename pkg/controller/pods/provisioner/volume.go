package provisioner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
)

// outcome is what a call has to do about a volume that was asked for.
type outcome int

const (
	// ask: there is no PodVolume, and one is to be made.
	ask outcome = iota
	// background: it is being made, or is waited for.
	background
	// tell: it has failed, and the user does not know yet, or has known for less than firstRetry.
	tell
	// discard: it has failed, and the user has known for long enough: it makes room for the next try.
	discard
	// done: it is there.
	done
)

// judge says what is to be done about a volume, and what is waited for or has failed. v is nil if
// there is none; told is whether its failure was told, firstRetry ago or more.
func judge(v *moorv1alpha1.PodVolume, told bool) (outcome, string) {
	switch {
	case v == nil:
		return ask, ""
	case !v.DeletionTimestamp.IsZero():
		return background, fmt.Sprintf("what an earlier try has left of volume %s is being removed first: %s", v.Name, orElse(v.Status.Message, string(v.Status.Phase)))
	case v.Status.Phase == moorv1alpha1.PodVolumeCreated:
		return done, ""
	case v.Status.Phase == moorv1alpha1.PodVolumeFailed && told:
		return discard, fmt.Sprintf("volume %s is made again, as it has failed: %s", v.Name, v.Status.Message)
	case v.Status.Phase == moorv1alpha1.PodVolumeFailed:
		return tell, orElse(v.Status.Message, "the volume has failed")
	case v.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed:
		return background, helper.AndAgain(v.Status.Message, "podvolume", v.Name)
	}
	return background, orElse(v.Status.Message, fmt.Sprintf("volume %s is being made", v.Name))
}

func orElse(words, otherwise string) string {
	if words == "" {
		return otherwise
	}
	return words
}

// refuses says why no volume can be made for a claim, by what no provisioner can do; empty if one can.
func refuses(claim *corev1.PersistentVolumeClaim) string {
	switch {
	case claim.Spec.Selector != nil:
		return "spec.selector chooses among volumes that are there, and a new one has no labels: remove it"
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return "a volume that pods make begins empty, and spec.dataSource asks for a copy: remove it"
	}
	return ""
}

// volumeOf is the PodVolume for a claim. It has its finalizer from the beginning.
func volumeOf(name, provisioner string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (*moorv1alpha1.PodVolume, error) {
	claim, class = claim.DeepCopy(), class.DeepCopy()
	claim.ManagedFields, class.ManagedFields = nil, nil
	out := &moorv1alpha1.PodVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{moorv1alpha1.FinalizerPodVolume}},
		Spec:       moorv1alpha1.PodVolumeSpec{ProvisionerName: provisioner},
	}
	for _, kept := range []struct {
		from any
		to   *runtime.RawExtension
	}{{claim, &out.Spec.Claim}, {class, &out.Spec.Class}} {
		content, err := json.Marshal(kept.from)
		if err != nil {
			return nil, fmt.Errorf("write what PodVolume %s is made for as JSON: %w", name, err)
		}
		kept.to.Raw = content
	}
	return out, nil
}

// persistentVolume is that of a volume that is there. Where a provisioner stages on some nodes alone, it can
// be used on these alone.
func persistentVolume(v *moorv1alpha1.PodVolume, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, selector map[string]string) *corev1.PersistentVolume {
	out := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.Status.CapacityBytes, resource.BinarySI)},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: v.Spec.ProvisionerName, VolumeHandle: v.Status.Handle, VolumeAttributes: maps.Clone(class.Parameters),
			}},
		},
	}
	if len(selector) == 0 {
		return out
	}
	var term corev1.NodeSelectorTerm
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{selector[key]}})
	}
	out.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}
	return out
}

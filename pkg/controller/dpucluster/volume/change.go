package volume

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// changes are what was asked of a volume after it was made and is not in effect
// yet; nil is nothing.
type changes struct {
	expansion, modification *storagev1alpha1.VolumeChange
	// again is when the next pass has to start even if no watch starts it; 0: never.
	again time.Duration
}

// change has the vendor's claim ask for what is asked of the volume now. The
// volume stays Available meanwhile: what it has can be used.
func (p *pass) change(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (changes, error) {
	expansion, failedExpand := p.expand(ctx, pvc)
	modification, failedModify := p.modify(ctx, pvc)
	now := changes{expansion: expansion, modification: modification}
	if due := modificationDue(pvc); modification != nil && !due.IsZero() {
		now.again = max(time.Millisecond, due.Sub(p.now)) // 0 is never
	}
	return now, errors.Join(failedExpand, failedModify)
}

// expand has the vendor's claim ask for the size that the volume is asked for,
// if the volume is smaller. csi-resizer beside the vendor's controller does the
// rest; the PersistentVolume tells when it is done.
func (p *pass) expand(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*storagev1alpha1.VolumeChange, error) {
	want, have := p.volume.Spec.Request.CapacityRange.Request, p.volume.Spec.Volume.Capacity
	if want == nil || have == nil || have.Cmp(*want) >= 0 {
		return nil, nil
	}
	asked := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if asked.Cmp(*want) < 0 {
		message, err := p.cannotGrow(ctx, pvc)
		if err != nil || message != "" {
			return &storagev1alpha1.VolumeChange{Size: want, Message: message, Refused: message != ""}, err
		}
	}
	_, err := kube.Patch(ctx, p.cluster.Client, pvc, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = *want
	})
	if err != nil {
		return &storagev1alpha1.VolumeChange{Size: want, Message: err.Error()}, err
	}
	return expansionOf(pvc, *have, *want), nil
}

// cannotGrow says why the vendor's claim may not be asked to grow; ""
// if it may. The API server refuses it too, with a message that names no remedy.
func (p *pass) cannotGrow(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (string, error) {
	name := p.volume.Spec.Volume.CSIReference.StorageClassName
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, p.cluster.Client, types.NamespacedName{Name: name}, class)
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("the vendor's PersistentVolumeClaim %s cannot grow: StorageClass %s does not exist any more", pvc.Name, name), nil
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return fmt.Sprintf("the vendor's PersistentVolumeClaim %s cannot grow: StorageClass %s in the DPU cluster has no allowVolumeExpansion: true", pvc.Name, name), nil
	}
	return "", nil
}

// expansionOf says how far the vendor is with a claim that asks for more.
func expansionOf(pvc *corev1.PersistentVolumeClaim, have, want resource.Quantity) *storagev1alpha1.VolumeChange {
	change := &storagev1alpha1.VolumeChange{Size: &want}
	tried, status := pvc.Status.AllocatedResources[corev1.ResourceStorage], pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	for _, c := range pvc.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimControllerResizeError && c.Status == corev1.ConditionTrue && tried.Cmp(want) == 0 {
			change.Message = fmt.Sprintf("the vendor could not expand PersistentVolumeClaim %s: %s", pvc.Name, c.Message)
			change.Refused = status == corev1.PersistentVolumeClaimControllerResizeInfeasible
		}
	}
	if change.Message == "" {
		change.Message = fmt.Sprintf("waiting for the vendor to expand PersistentVolumeClaim %s from %s to %s: is csi-resizer running beside its CSI controller?",
			pvc.Name, have.String(), want.String())
	}
	return change
}

// modify has the vendor's claim name a VolumeAttributesClass with the mutable
// parameters that are asked for. csi-resizer beside the vendor's controller does
// the rest; the claim's status tells when they are in effect. A claim is made
// without: of parameters that csi-provisioner is refused, only an event tells.
func (p *pass) modify(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*storagev1alpha1.VolumeChange, error) {
	v := p.volume
	want, have := v.Spec.Request.MutableParameters, v.Spec.Volume.MutableParameters
	change := &storagev1alpha1.VolumeChange{Parameters: want}
	if len(want) == 0 && len(have) > 0 {
		change.Message = "mutable parameters that were once in effect cannot be taken back: ask for the values that stand for none"
		change.Refused = true
		return change, nil
	}
	name, err := p.attributesClass(ctx, pvc)
	if meta.IsNoMatchError(err) {
		change.Message = "mutable parameters need VolumeAttributesClasses (storage.k8s.io/v1, Kubernetes 1.34), which the DPU cluster does not serve"
		change.Refused = true
		return change, nil
	}
	if err == nil && ptr.Deref(name, "") != ptr.Deref(pvc.Spec.VolumeAttributesClassName, "") {
		_, err = kube.Patch(ctx, p.cluster.Client, pvc, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName = name
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, storagev1alpha1.AnnotationModificationAsked, p.now.UTC().Format(time.RFC3339Nano))
		})
	}
	if err != nil {
		change.Message = err.Error()
		return change, err
	}
	switch {
	case maps.Equal(want, have):
		return nil, nil
	case !slices.Contains(attributesClassesOf(v), ptr.Deref(pvc.Status.CurrentVolumeAttributesClassName, "")):
		return modificationOf(pvc, change, *name), nil
	}
	if _, err := kube.Patch(ctx, p.cluster.Client, v, func(v *storagev1alpha1.Volume) { v.Spec.Volume.MutableParameters = want }); err != nil {
		return change, fmt.Errorf("record the mutable parameters in effect: %w", err)
	}
	return nil, p.sweepClasses(ctx)
}

// modificationOf says how far the vendor is with a claim that names another class.
func modificationOf(pvc *corev1.PersistentVolumeClaim, change *storagev1alpha1.VolumeChange, name string) *storagev1alpha1.VolumeChange {
	s := pvc.Status.ModifyVolumeStatus
	ours := s != nil && s.TargetVolumeAttributesClassName == name
	for _, c := range pvc.Status.Conditions {
		if ours && c.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError && c.Status == corev1.ConditionTrue {
			change.Message = fmt.Sprintf("the vendor could not modify PersistentVolumeClaim %s: %s", pvc.Name, c.Message)
		}
	}
	change.Refused = ours && s.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible
	switch {
	case change.Message != "":
	case pending(pvc):
		change.Message = fmt.Sprintf("waiting for the vendor to modify PersistentVolumeClaim %s: its csi-resizer did not find VolumeAttributesClass %s, and is told of another one", pvc.Name, name)
	default:
		change.Message = fmt.Sprintf("waiting for the vendor to modify PersistentVolumeClaim %s: is csi-resizer running beside its CSI controller, and can that modify volumes?", pvc.Name)
	}
	return change
}

// pending reports whether csi-resizer did not find the class that the claim names.
func pending(pvc *corev1.PersistentVolumeClaim) bool {
	s := pvc.Status.ModifyVolumeStatus
	return s != nil && s.Status == corev1.PersistentVolumeClaimModifyVolumePending
}

// modificationPause is how long csi-resizer has to learn of a class that was just made,
// before the claim names another one. It is our own choice.
const modificationPause = 2 * time.Second

// modificationDue is when a claim whose class csi-resizer did not find has to name another
// one; the zero time if it need not.
func modificationDue(pvc *corev1.PersistentVolumeClaim) time.Time {
	if !pending(pvc) {
		return time.Time{}
	}
	// What cannot be read was not written here: it is due.
	asked, _ := time.Parse(time.RFC3339Nano, pvc.Annotations[storagev1alpha1.AnnotationModificationAsked])
	return asked.Add(modificationPause)
}

// attributesClass makes the class of the mutable parameters that a volume asks for, if
// its claim has to name it and there is none, and returns its name; nil if it asks for
// none.
func (p *pass) attributesClass(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*string, error) {
	v := p.volume
	names := attributesClassesOf(v)
	if names == nil {
		return nil, nil
	}
	named := slices.Index(names, ptr.Deref(pvc.Spec.VolumeAttributesClassName, ""))
	if due := modificationDue(pvc); named >= 0 && (due.IsZero() || p.now.Before(due)) {
		return &names[named], nil
	}
	name := names[(named+1)%len(names)]
	class := &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{storagev1alpha1.LabelMutableParameters: "true"}},
		DriverName: v.Spec.Volume.CSIReference.CSIDriverName, Parameters: v.Spec.Request.MutableParameters,
	}
	_, err := kube.CreateLive(ctx, p.cluster.Client, p.cluster.Live, class)
	return &name, err
}

// attributesClassesOf names the classes that the mutable parameters which a volume asks
// for can have; nil if it asks for none.
func attributesClassesOf(v *storagev1alpha1.Volume) []string {
	if len(v.Spec.Request.MutableParameters) == 0 {
		return nil
	}
	return attributesClassNames(v.Spec.Volume.CSIReference.CSIDriverName, v.Spec.Request.MutableParameters)
}

// attributesClassNames follow from what is in the class, which cannot change. There are
// two names for the same: csi-resizer looks for a class once, in its cache, and after that
// only when the claim names another one. So a claim whose class it did not find, because
// the class was just made or was just removed as unused, names the other.
func attributesClassNames(driver string, parameters map[string]string) []string {
	raw, _ := json.Marshal(parameters) // strings alone; keys in order
	name := fmt.Sprintf("moor-%x", sha256.Sum256(append([]byte(driver+"\n"), raw...)))[:37]
	return []string{name, name + "-b"}
}

// sweepClasses removes the classes of v's driver that no volume asks for or has
// any more.
func (p *pass) sweepClasses(ctx context.Context) error {
	v := p.volume
	driver := v.Spec.Volume.CSIReference.CSIDriverName
	volumes := &storagev1alpha1.VolumeList{}
	err := p.cluster.Client.List(ctx, volumes, client.MatchingFields{index.VolumeByDriver: driver}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("find the volumes of driver %s: %w", driver, err)
	}
	used := map[string]bool{}
	for i := range volumes.Items {
		o := &volumes.Items[i]
		if o.UID == v.UID {
			o = v // the cache may be behind
		}
		if o.DeletionTimestamp.IsZero() {
			inUse := append(attributesClassNames(driver, o.Spec.Request.MutableParameters), attributesClassNames(driver, o.Spec.Volume.MutableParameters)...)
			for _, name := range inUse {
				used[name] = true
			}
		}
	}
	classes := &storagev1.VolumeAttributesClassList{}
	if err := p.cluster.Live.List(ctx, classes, client.HasLabels{storagev1alpha1.LabelMutableParameters}); err != nil {
		return fmt.Errorf("find the VolumeAttributesClasses of driver %s: %w", driver, err)
	}
	for i := range classes.Items {
		if c := &classes.Items[i]; c.DriverName == driver && !used[c.Name] {
			if err := kube.Delete(ctx, p.cluster.Client, c); err != nil {
				return err
			}
		}
	}
	return nil
}

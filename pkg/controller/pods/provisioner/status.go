package provisioner

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// mostNames is how many of what holds a provisioner up are named.
const mostNames = 3

// seen is what a pass knows of a provisioner besides the object.
type seen struct {
	errs field.ErrorList
	// revokes: it can be used, and has a revocation pod.
	revokes bool
	// driver is the CSIDriver of its name; nil if there is none.
	driver   *storagev1.CSIDriver
	volumes  []moorv1alpha1.PodVolume
	stagings []moorv1alpha1.PodStaging
	pvs      []corev1.PersistentVolume
}

// ours reports whether a CSIDriver was made for this provisioner.
func ours(p *pavv1alpha1.PavProvisioner, d *storagev1.CSIDriver) bool {
	return d != nil && metav1.IsControlledBy(d, p)
}

// csiDriver is the CSIDriver of a provisioner. Nothing is attached, the node is told which pod it
// mounts for, and owners of files are left to the pods that stage.
func csiDriver(p *pavv1alpha1.PavProvisioner) *storagev1.CSIDriver {
	owner := *metav1.NewControllerRef(p, pavv1alpha1.GroupVersion.WithKind("PavProvisioner"))
	owner.BlockOwnerDeletion = ptr.To(false) // the finalizer of the provisioner does that
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr.To(false), PodInfoOnMount: ptr.To(true), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
			FSGroupPolicy: ptr.To(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		},
	}
}

// vouch writes into a CSIDriver whether the storage revokes DPUs, as the provisioner has pods for that.
func vouch(d *storagev1.CSIDriver, revokes bool) {
	if !revokes {
		delete(d.Annotations, storagev1alpha1.AnnotationRevokes)
		return
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[storagev1alpha1.AnnotationRevokes] = "true"
}

// holdsUp says what keeps a provisioner that is being deleted, with some names; empty if nothing does.
func holdsUp(s seen) string {
	var words []string
	say := func(what string, n int, name func(i int) string) {
		if n == 0 {
			return
		}
		var names []string
		for i := range min(n, mostNames) {
			names = append(names, name(i))
		}
		if n > mostNames {
			names = append(names, "...")
		}
		words = append(words, fmt.Sprintf("%d %s (%s)", n, what, strings.Join(names, ", ")))
	}
	say("PodVolumes", len(s.volumes), func(i int) string { return s.volumes[i].Name })
	say("PersistentVolumes", len(s.pvs), func(i int) string { return s.pvs[i].Name })
	say("PodStagings", len(s.stagings), func(i int) string { return s.stagings[i].Name })
	if len(words) == 0 {
		return ""
	}
	return "there are " + strings.Join(words, ", ") + " of it: delete the claims and pods that use them, and volumes that are retained"
}

// ready is the condition of a provisioner.
func ready(p *pavv1alpha1.PavProvisioner, s seen) metav1.Condition {
	c := metav1.Condition{Type: pavv1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation}
	switch {
	case !p.DeletionTimestamp.IsZero():
		c.Reason, c.Message = pavv1alpha1.ReasonInUse, "it is being deleted, and serves what there is alone: "+holdsUp(s)
	case len(s.errs) > 0:
		c.Reason, c.Message = pavv1alpha1.ReasonInvalid, s.errs.ToAggregate().Error()
	case s.driver != nil && !ours(p, s.driver):
		c.Reason, c.Message = pavv1alpha1.ReasonDriverTaken, fmt.Sprintf("CSIDriver %s belongs to another: remove that driver, or give this provisioner another name", p.Name)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, pavv1alpha1.ReasonReady
	}
	return c
}

// report writes into a status what is seen.
func report(p *pavv1alpha1.PavProvisioner, s seen) {
	out := &p.Status
	out.Volumes, out.FailedVolumes, out.Stagings, out.FailedStagings = 0, 0, 0, 0
	for i := range s.volumes {
		switch s.volumes[i].Status.Phase {
		case moorv1alpha1.PodVolumeFailed:
			continue // there is nothing of it
		case moorv1alpha1.PodVolumeDeletionFailed:
			out.FailedVolumes++
		}
		out.Volumes++
	}
	for i := range s.stagings {
		switch s.stagings[i].Status.Phase {
		case moorv1alpha1.PodStagingFailed, moorv1alpha1.PodStagingUnstaged:
			continue
		case moorv1alpha1.PodStagingUnstagingFailed:
			out.FailedStagings++
		}
		out.Stagings++
	}
	out.ObservedGeneration = p.Generation
	meta.SetStatusCondition(&out.Conditions, ready(p, s))
}

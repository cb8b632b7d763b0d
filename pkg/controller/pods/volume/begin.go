package volume

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// NameOf is the name of the PodVolume of a claim, and of its PersistentVolume.
func NameOf(claim *corev1.PersistentVolumeClaim) string { return pods.DefaultHandle(claim) }

// podName is the name of the pod of a phase, and of its directory. Each try has its own: the directory of the
// one before may be left when it begins, and what stands there would be taken for what this one says.
func podName(v *moorv1alpha1.PodVolume, phase pods.Phase) string {
	name := pods.PodName(phase, ClaimUID(v))
	if phase != pods.Deletion {
		return name
	}
	return helper.TryName(name, tries(v))
}

// tries are those of the deletion pod that works, or is to work.
func tries(v *moorv1alpha1.PodVolume) moorv1alpha1.HelperTries {
	if v.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed {
		return helper.Next(v, v.Status.HelperTries)
	}
	return v.Status.HelperTries
}

// asked is what a volume was asked for with.
type asked struct {
	claim *corev1.PersistentVolumeClaim
	class *storagev1.StorageClass
}

// askedOf reads what a PodVolume has kept of its claim and class.
func askedOf(v *moorv1alpha1.PodVolume) (asked, error) {
	out := asked{&corev1.PersistentVolumeClaim{}, &storagev1.StorageClass{}}
	if err := json.Unmarshal(v.Spec.Claim.Raw, out.claim); err != nil {
		return out, fmt.Errorf("PodVolume %s: spec.claim is no PersistentVolumeClaim: %w", v.Name, err)
	}
	if err := json.Unmarshal(v.Spec.Class.Raw, out.class); err != nil {
		return out, fmt.Errorf("PodVolume %s: spec.class is no StorageClass: %w", v.Name, err)
	}
	return out, nil
}

// evaluated is what the templates of a phase came to.
type evaluated struct {
	template *corev1.PodTemplateSpec
	// made and request are those of the creation.
	made    pods.Made
	request pods.Request
	err     error
}

// begun is the step that follows from the templates of a phase: the pod is recorded, or there is
// none, and what it would have done is done.
func begun(v *moorv1alpha1.PodVolume, phase pods.Phase, e evaluated, now time.Time) step {
	if e.err != nil {
		return unbegun(v, phase, e.err, now)
	}
	if e.template != nil {
		return records(v, toWork(v, phase), helper.Record(e.template, podName(v, phase), now))
	}
	switch phase {
	case pods.Validation:
		return step{do: begin, phase: pods.Creation}
	case pods.Creation:
		return resolved(v, e, nil, now)
	}
	if toWork(v, phase) == moorv1alpha1.PodVolumeReverting {
		return retried(v, become(v, moorv1alpha1.PodVolumeFailed, helper.Why(v.Status.Message)))
	}
	return retried(v, become(v, moorv1alpha1.PodVolumeDeleted, ""))
}

// unbegun is the step if the pod of a phase cannot be had.
func unbegun(v *moorv1alpha1.PodVolume, phase pods.Phase, err error, now time.Time) step {
	switch phase {
	case pods.Validation:
		return become(v, moorv1alpha1.PodVolumeFailed, err.Error())
	case pods.Creation:
		return become(v, moorv1alpha1.PodVolumeReverting, "the volume cannot be made: "+err.Error())
	}
	words := "the volume cannot be removed: " + err.Error()
	if toWork(v, phase) == moorv1alpha1.PodVolumeReverting {
		words = helper.Left(helper.Why(v.Status.Message), err.Error())
	}
	return stuck(retried(v, become(v, moorv1alpha1.PodVolumeDeletionFailed, words)), now)
}

// toWork is the phase in which the pod of a phase works.
func toWork(v *moorv1alpha1.PodVolume, phase pods.Phase) moorv1alpha1.PodVolumePhase {
	switch {
	case phase == pods.Validation:
		return moorv1alpha1.PodVolumeValidating
	case phase == pods.Creation:
		return moorv1alpha1.PodVolumeCreating
	case v.Status.Phase == moorv1alpha1.PodVolumeReverting, v.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed && v.DeletionTimestamp.IsZero():
		return moorv1alpha1.PodVolumeReverting
	}
	return moorv1alpha1.PodVolumeDeleting
}

// retried notes in a write of a volume which try of its deletion has begun.
func retried(v *moorv1alpha1.PodVolume, s step) step {
	s.next.HelperTries = tries(v)
	return s
}

// resolved is the step once the volume was made: its handle and size are known, or it has failed.
func resolved(v *moorv1alpha1.PodVolume, e evaluated, report *moorv1alpha1.PodReport, now time.Time) step {
	if e.err == nil {
		handle, bytes, err := e.made.Resolve(e.request, report, v.Name)
		if err == nil {
			out := become(v, moorv1alpha1.PodVolumeCreated, "")
			out.next.Handle, out.next.CapacityBytes = handle, bytes
			return out
		}
		e.err = err
	}
	return unbegun(v, pods.Creation, e.err, now)
}

// ClaimUID is the UID of the claim of a volume.
func ClaimUID(v *moorv1alpha1.PodVolume) types.UID {
	return types.UID(strings.TrimPrefix(v.Name, "pvc-"))
}

package staging

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// idOf is the short name of a staging, which no other has.
func idOf(p *moorv1alpha1.PodStaging) string { return helper.Short(string(p.UID)) }

// podName is the name of the pod of a phase.
func podName(p *moorv1alpha1.PodStaging, phase pods.Phase) string {
	return pods.StagingPodName(phase, idOf(p))
}

// evaluated is what the templates of a phase came to.
type evaluated struct {
	template *corev1.PodTemplateSpec
	err      error
}

// begun is the step that follows from the templates of a phase: the pod is recorded, or there is
// none to run.
func begun(p *moorv1alpha1.PodStaging, phase pods.Phase, e evaluated, now time.Time) step {
	to := toWork(p, phase)
	if e.err != nil {
		return unbegun(p, phase, e.err, now)
	}
	var out step
	switch {
	case e.template != nil:
		record := helper.Record(e.template, podName(p, phase), now)
		out = become(p, to, helper.The(phase, record)+" is to run")
		if out.next.Pod = record; p.Status.Phase == isBroken {
			out.next.Message = healing + ", as " + p.Status.Message
		}
		out.next.Directory = pods.StagingName(idOf(p))
	case to == isReverting:
		out = become(p, isFailed, helper.Why(p.Status.Message))
		out.next.Pod = nil
	default:
		out = become(p, isUnstaging, "the volume is being unstaged")
		out.next.Pod = nil
	}
	if to == isReverting {
		out.next.Message = helper.Why(p.Status.Message) // of the staging
	}
	out.next.Report = nil // it is of another pod
	return retried(p, out)
}

// unbegun is the step if the pod of a phase cannot be had.
func unbegun(p *moorv1alpha1.PodStaging, phase pods.Phase, err error, now time.Time) step {
	words := err.Error()
	var out step
	switch {
	case phase == pods.Staging && p.Status.Phase == "":
		out = become(p, isFailed, words) // nothing was done yet
	case phase == pods.Staging:
		out = become(p, isReverting, words)
	default:
		if toWork(p, phase) == isReverting {
			words = helper.Left(helper.Why(p.Status.Message), words)
		}
		out = stuck(retried(p, become(p, isStuck, words)), now)
	}
	what := "unstaged from"
	if phase == pods.Staging {
		what = "staged on"
	}
	out.tells = "volume " + p.Spec.VolumeName + " cannot be " + what + " node " + p.Spec.NodeName + ": " + words
	return out
}

// toWork is the phase in which the pod of a phase works.
func toWork(p *moorv1alpha1.PodStaging, phase pods.Phase) moorv1alpha1.PodStagingPhase {
	switch {
	case phase == pods.Staging:
		return isStaging
	case p.Status.Phase == isReverting, p.Status.Phase == isStuck && p.DeletionTimestamp.IsZero():
		return isReverting
	}
	return isUnstaging
}

// retried notes in a write of a staging whose end had failed which try of it has begun.
func retried(p *moorv1alpha1.PodStaging, s step) step {
	if p.Status.Phase == isStuck {
		s.next.HelperTries = helper.Next(p, p.Status.HelperTries)
	}
	return s
}

package revocation

import (
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// seen is what a pass knows of a PodRevocation besides the object.
type seen struct {
	now time.Time
	// pod is that of status.pod.
	pod helper.Seen
	// strays are how many pods were made for this revocation that its status does not record.
	strays int
	// provisioner is that of the volume.
	provisioner compiled.Found
	// unasked: what has asked for it is gone, or is not being deleted any more.
	unasked bool
}

// action is what a step does; each writes once at most.
type action int

const (
	// wait: nothing is to be done now; after says when to look again though nothing happens.
	wait action = iota
	// write: next is the status.
	write
	// begin: the templates are to be evaluated, and the pod recorded.
	begin
	// makePod: the pod that is recorded is to be made.
	makePod
	// removePod: the pod that is recorded is to go.
	removePod
	// sweep: the strays are to go.
	sweep
	// retire: the PodRevocation is to be deleted, as it is of no use.
	retire
	// free: the finalizer is to be removed.
	free
)

// step is what a pass does.
type step struct {
	do action
	// next is the status of a write.
	next  moorv1alpha1.PodRevocationStatus
	after time.Duration
	// ended is what the pod has come to, if a write says so.
	ended *helper.Judgement
}

// The phases, in short.
const (
	isRevoking = moorv1alpha1.PodRevocationRevoking
	isRevoked  = moorv1alpha1.PodRevocationRevoked
	isFailed   = moorv1alpha1.PodRevocationFailed
)

// decide is the next step of a PodRevocation.
func decide(r *moorv1alpha1.PodRevocation, s seen) step {
	deleted := !r.DeletionTimestamp.IsZero()
	switch {
	case s.unasked && !deleted:
		return step{do: retire}
	case r.Status.Phase == isRevoking && !deleted:
		return ofPod(r, s)
	case r.Status.Pod != nil && s.pod.Pod != nil:
		return step{do: removePod}
	case s.strays > 0:
		return step{do: sweep}
	case deleted:
		return step{do: free}
	case r.Status.Phase == "", r.Status.Phase == isFailed && helper.Due(r, r.Status.HelperTries, s.now) <= 0:
		return beginning(r, s)
	case r.Status.Phase == isFailed:
		return step{after: helper.Due(r, r.Status.HelperTries, s.now)}
	}
	return step{do: wait}
}

func beginning(r *moorv1alpha1.PodRevocation, s seen) step {
	if s.provisioner.Provisioner == nil {
		return says(r, s.provisioner.Words)
	}
	return step{do: begin}
}

// ofPod is the step that the pod asks for. One of a template that is another by now is not made.
func ofPod(r *moorv1alpha1.PodRevocation, s seen) step {
	if r.Status.Pod == nil { // a person has changed the status
		return step{do: begin}
	}
	j := helper.Judge(helper.Case{
		Phase: pods.Revocation, Record: r.Status.Pod, Seen: s.pod, Timeout: s.provisioner.Timeout(pods.Revocation), Now: s.now, NotOn: r.Spec.NodeName,
	})
	var out step
	switch j.Verdict {
	case helper.Unmade:
		switch by := s.provisioner; {
		case by.Provisioner == nil:
			out = says(r, by.Words)
		case by.UID != r.Status.ProvisionerUID || by.Provisioner.Revokes() != r.Status.Template:
			return step{do: begin}
		default:
			return step{do: makePod}
		}
		out.after = j.Again
	case helper.Unnoted:
		out = become(r, isRevoking, r.Status.Message)
		helper.Note(out.next.Pod, s.pod.Pod)
		out.next.Began = s.pod.Pod.CreationTimestamp.DeepCopy()
	case helper.Waits:
		out = says(r, j.Words)
		out.after = j.Again
	default:
		out = ofEnd(r, j, s.now)
	}
	return out
}

// ofEnd is what follows from the end of the pod.
func ofEnd(r *moorv1alpha1.PodRevocation, j helper.Judgement, now time.Time) step {
	out := become(r, isRevoked, "")
	if j.Verdict != helper.Succeeded {
		out = become(r, isFailed, j.Words)
		out.next.HelperTries = helper.FailedAgain(r.Status.HelperTries, now)
	}
	out.ended = &j
	return out
}

// begun is the step that follows from the templates: the pod is recorded, with what it is made of, or the revocation has
// failed.
func begun(r *moorv1alpha1.PodRevocation, by compiled.Found, e evaluated, now time.Time) step {
	var out step
	if e.err != nil {
		out = become(r, isFailed, "the storage cannot be asked: "+e.err.Error())
		out.next.HelperTries = helper.FailedAgain(tries(r), now)
	} else {
		record := helper.Record(e.template, podName(r), now)
		out = become(r, isRevoking, helper.The(pods.Revocation, record)+" is to run")
		out.next.Pod, out.next.Began, out.next.HelperTries = record, nil, tries(r)
		out.next.ProvisionerUID, out.next.Template = by.UID, by.Provisioner.Revokes()
	}
	return out
}

// podName is the name of the pod. Each try has its own, so that none is taken for another's.
func podName(r *moorv1alpha1.PodRevocation) string {
	return pods.RevocationName(helper.TryName(helper.Short(string(r.UID)), tries(r)))
}

// tries are those of the pod that works, or is to work.
func tries(r *moorv1alpha1.PodRevocation) moorv1alpha1.HelperTries {
	if r.Status.Phase == isFailed {
		return helper.Next(r, r.Status.HelperTries)
	}
	return r.Status.HelperTries
}

// become is a write of a phase and a message.
func become(r *moorv1alpha1.PodRevocation, phase moorv1alpha1.PodRevocationPhase, message string) step {
	next := r.Status.DeepCopy()
	next.Phase, next.Message = phase, message
	return step{do: write, next: *next}
}

// says is a write of a message, or a wait if the status has it.
func says(r *moorv1alpha1.PodRevocation, message string) step {
	if r.Status.Message == message {
		return step{}
	}
	return become(r, r.Status.Phase, message)
}

package volume

import (
	"fmt"
	"strings"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// seen is what a pass knows of a PodVolume besides the object.
type seen struct {
	now time.Time
	// pod is that of status.pod.
	pod helper.Seen
	// strays are how many pods were made for this volume that its status does not record.
	strays int
	// provisioner is that of the volume.
	provisioner compiled.Found
	// abandoned: the claim is gone, and no PersistentVolume was made.
	abandoned bool
	// kept: a PersistentVolume was made, and it and the claim are gone.
	kept bool
	// staged are where the volume is staged.
	staged []string
}

// action is what a step does; each writes once at most.
type action int

const (
	// wait: nothing is to be done now; after says when to look again though nothing happens.
	wait action = iota
	// write: next is the status.
	write
	// begin: the templates of a phase are to be evaluated, and its pod recorded.
	begin
	// makePod: the pod that is recorded is to be made.
	makePod
	// resolve: the creation pod has done its work; what it has left is to be read.
	resolve
	// removePod: the pod that is recorded is to go.
	removePod
	// sweep: the strays are to go.
	sweep
	// retire: the PodVolume is to be deleted, as it is of no use.
	retire
	// release: the finalizer is to be removed.
	release
)

// step is what a pass does.
type step struct {
	do action
	// next is the status of a write.
	next moorv1alpha1.PodVolumeStatus
	// phase of begin and makePod.
	phase pods.Phase
	after time.Duration
	// ended is what the pod has come to, if a write says so.
	ended *helper.Judgement
}

// working is which pod works in a phase; empty if none does.
var working = map[moorv1alpha1.PodVolumePhase]pods.Phase{
	moorv1alpha1.PodVolumeValidating: pods.Validation,
	moorv1alpha1.PodVolumeCreating:   pods.Creation,
	moorv1alpha1.PodVolumeReverting:  pods.Deletion,
	moorv1alpha1.PodVolumeDeleting:   pods.Deletion,
}

// decide is the next step of a PodVolume. A pod that is recorded works if it is that of the phase;
// else it is what the phase before has left, which has to be gone first.
func decide(v *moorv1alpha1.PodVolume, s seen) step {
	deleted := !v.DeletionTimestamp.IsZero()
	phase := working[v.Status.Phase]
	works := phase != "" && helper.Is(v.Status.Pod, podName(v, phase))
	switch {
	case !deleted && givenUp(v.Status.Phase, s):
		return step{do: retire}
	case deleted && (v.Status.Phase == moorv1alpha1.PodVolumeValidating || v.Status.Phase == moorv1alpha1.PodVolumeCreating):
		return interrupted(v, works)
	case works:
		return ofPod(v, s, phase)
	case v.Status.Pod != nil && s.pod.Pod != nil:
		return step{do: removePod}
	case s.strays > 0:
		return step{do: sweep}
	case phase != "":
		return beginning(v, s, phase)
	}
	return atRest(v, s, deleted)
}

// givenUp reports whether a volume is of no use: it has no claim, or its provisioner will not make it any
// more. Not so while a deletion pod runs, or a person is waited for.
func givenUp(phase moorv1alpha1.PodVolumePhase, s seen) bool {
	switch phase {
	case "", moorv1alpha1.PodVolumeValidating, moorv1alpha1.PodVolumeCreating, moorv1alpha1.PodVolumeFailed:
		return s.abandoned || s.provisioner.Deleting
	case moorv1alpha1.PodVolumeCreated:
		return s.abandoned
	}
	return false
}

// interrupted is the step of a volume that is deleted before it is there. Once the creation pod is
// recorded, there may be something of it.
func interrupted(v *moorv1alpha1.PodVolume, works bool) step {
	if works && v.Status.Phase == moorv1alpha1.PodVolumeCreating {
		return become(v, moorv1alpha1.PodVolumeDeleting, "deleted while it was being made: what there is of it is to be removed")
	}
	return become(v, moorv1alpha1.PodVolumeDeleted, "")
}

// beginning is the beginning of a phase, if there are templates for it.
func beginning(v *moorv1alpha1.PodVolume, s seen, phase pods.Phase) step {
	if s.provisioner.Provisioner == nil {
		return awaits(v, s.provisioner.Words, 0)
	}
	return step{do: begin, phase: phase}
}

// ofPod is the step that the pod of the phase asks for.
func ofPod(v *moorv1alpha1.PodVolume, s seen, phase pods.Phase) step {
	j := helper.Judge(helper.Case{Phase: phase, Record: v.Status.Pod, Seen: s.pod, Report: v.Status.Report, Timeout: s.provisioner.Timeout(phase), Now: s.now})
	switch j.Verdict {
	case helper.Unmade:
		if s.provisioner.Provisioner == nil {
			return awaits(v, s.provisioner.Words, j.Again)
		}
		return step{do: makePod, phase: phase}
	case helper.Unnoted:
		out := become(v, v.Status.Phase, v.Status.Message)
		helper.Note(out.next.Pod, s.pod.Pod)
		return out
	case helper.Waits:
		return awaits(v, j.Words, j.Again)
	}
	return ofEnd(v, s, j)
}

// ofEnd is what follows from the end of the pod of the phase.
func ofEnd(v *moorv1alpha1.PodVolume, s seen, j helper.Judgement) step {
	var out step
	failed := j.Verdict == helper.Failed
	switch v.Status.Phase {
	case moorv1alpha1.PodVolumeValidating:
		if out = become(v, moorv1alpha1.PodVolumeCreating, "the volume is valid"); failed {
			out = become(v, moorv1alpha1.PodVolumeFailed, j.Words)
		}
	case moorv1alpha1.PodVolumeCreating:
		if !failed {
			if s.provisioner.Provisioner == nil {
				return awaits(v, s.provisioner.Words, 0)
			}
			return step{do: resolve}
		}
		out = become(v, moorv1alpha1.PodVolumeReverting, j.Words)
	case moorv1alpha1.PodVolumeReverting:
		if out = become(v, moorv1alpha1.PodVolumeFailed, v.Status.Message); failed {
			out = stuck(become(v, moorv1alpha1.PodVolumeDeletionFailed, helper.Left(v.Status.Message, j.Words)), s.now)
		}
	default:
		if out = become(v, moorv1alpha1.PodVolumeDeleted, ""); failed {
			out = stuck(become(v, moorv1alpha1.PodVolumeDeletionFailed, j.Words), s.now)
		}
	}
	out.ended = &j
	return out
}

// atRest is the step of a volume for which no pod works and none has to go.
func atRest(v *moorv1alpha1.PodVolume, s seen, deleted bool) step {
	switch phase := v.Status.Phase; {
	case phase == moorv1alpha1.PodVolumeDeleted:
		return step{do: release}
	case deleted && (phase == "" || phase == moorv1alpha1.PodVolumeFailed):
		return become(v, moorv1alpha1.PodVolumeDeleted, "")
	case phase == "":
		return beginning(v, s, pods.Validation)
	case retries(v, s.now):
		return beginning(v, s, pods.Deletion)
	case deleted && phase == moorv1alpha1.PodVolumeCreated:
		if len(s.staged) > 0 {
			return says(v, "the volume is in use: "+strings.Join(s.staged, ", "))
		}
		return beginning(v, s, pods.Deletion)
	case v.Status.Pod != nil:
		return become(v, phase, v.Status.Message)
	case phase == moorv1alpha1.PodVolumeCreated:
		return there(v, s)
	case phase == moorv1alpha1.PodVolumeDeletionFailed:
		return step{after: helper.Due(v, v.Status.HelperTries, s.now)}
	}
	return step{}
}

// retries reports whether a deletion that failed is to be tried again now.
func retries(v *moorv1alpha1.PodVolume, now time.Time) bool {
	return v.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed && helper.Due(v, v.Status.HelperTries, now) <= 0
}

// there is the step of a volume that is there.
func there(v *moorv1alpha1.PodVolume, s seen) step {
	if s.kept {
		return says(v, fmt.Sprintf("its PersistentVolume and its claim are gone, and the data is kept: delete this PodVolume to have the volume %s removed", v.Status.Handle))
	}
	return says(v, "")
}

// become is a write of a phase and a message. A pod that is recorded stays so until it is gone.
func become(v *moorv1alpha1.PodVolume, phase moorv1alpha1.PodVolumePhase, message string) step {
	next := v.Status.DeepCopy()
	next.Phase, next.Message = phase, message
	if working[phase] == "" && phase == v.Status.Phase {
		next.Pod = nil
	}
	return step{do: write, next: *next}
}

// says is a write of a message, or a wait if the status has it.
func says(v *moorv1alpha1.PodVolume, message string) step {
	if v.Status.Message == message {
		return step{}
	}
	next := v.Status.DeepCopy()
	next.Message = message
	return step{do: write, next: *next}
}

// awaits is a wait for which the message says what is waited for, unless it has to say why the
// creation has failed.
func awaits(v *moorv1alpha1.PodVolume, words string, after time.Duration) step {
	out := step{}
	if v.Status.Phase != moorv1alpha1.PodVolumeReverting {
		out = says(v, words)
	}
	out.after = after
	return out
}

// records is a write of the pod that is to work in a phase. What another has reported is over.
func records(v *moorv1alpha1.PodVolume, phase moorv1alpha1.PodVolumePhase, pod *moorv1alpha1.HelperPod) step {
	out := become(v, phase, helper.Why(v.Status.Message))
	out.next.Pod, out.next.Report = pod, nil
	if phase != moorv1alpha1.PodVolumeReverting {
		out.next.Message = helper.The(working[phase], pod) + " is to run"
	}
	return retried(v, out)
}

// stuck counts in a write of a deletion that has failed that it has.
func stuck(s step, now time.Time) step {
	s.next.HelperTries = helper.FailedAgain(s.next.HelperTries, now)
	return s
}

package staging

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// seen is what a pass knows of a PodStaging besides the object.
type seen struct {
	now time.Time
	// pod is that of status.pod.
	pod helper.Seen
	// strays are how many pods were made for this staging that its status does not record.
	strays int
	// provisioner is that of the volume.
	provisioner compiled.Found
	// nodeGone: there is no such Node any more.
	nodeGone bool
	// expected is what the staged volume has to be.
	expected expected
}

// expected is what a staged volume has to be.
type expected struct {
	mode corev1.PersistentVolumeMode
	// bytes is the size of a block device; 0: any, as a person has made the volume.
	bytes int64
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
	// removePod: the pod that is recorded is to go.
	removePod
	// sweep: the strays are to go.
	sweep
	// retire: the PodStaging is to be deleted, as its node is gone.
	retire
	// release: the finalizer is to be removed.
	release
)

// step is what a pass does.
type step struct {
	do action
	// next is the status of a write.
	next moorv1alpha1.PodStagingStatus
	// phase of begin and makePod.
	phase pods.Phase
	after time.Duration
	// ended is what the pod has come to, if a write says so.
	ended *helper.Judgement
	// tells is an event on the pod of the user that goes with a write; empty: none.
	tells string
}

// The phases, in short.
const (
	isStaging   = moorv1alpha1.PodStagingStaging
	isStaged    = moorv1alpha1.PodStagingStaged
	isBroken    = moorv1alpha1.PodStagingBroken
	isReverting = moorv1alpha1.PodStagingReverting
	isFailed    = moorv1alpha1.PodStagingFailed
	isUnstaging = moorv1alpha1.PodStagingUnstaging
	isStuck     = moorv1alpha1.PodStagingUnstagingFailed
	isUnstaged  = moorv1alpha1.PodStagingUnstaged
)

// working is which pod works in a phase; empty if none does.
var working = map[moorv1alpha1.PodStagingPhase]pods.Phase{isStaging: pods.Staging, isReverting: pods.Unstaging, isUnstaging: pods.Unstaging}

// decide is the next step of a PodStaging. A pod that is recorded works if it is that of the phase, or
// keeps a staged volume there; else it is what the phase before has left, which has to be gone first.
func decide(p *moorv1alpha1.PodStaging, s seen) step {
	deleted := !p.DeletionTimestamp.IsZero()
	phase := working[p.Status.Phase]
	works := phase != "" && helper.Is(p.Status.Pod, podName(p, phase))
	switch {
	case s.nodeGone && p.Status.Phase != isUnstaged:
		return lost(p, deleted)
	case deleted && p.Status.Pod != nil && has(p):
		return leaves(p, isUnstaging, "the volume is being unstaged")
	case works:
		return ofPod(p, s, phase)
	case p.Status.Phase == isStaged && !deleted && p.Status.Pod != nil:
		return keeps(p, s)
	case p.Status.Pod != nil && s.pod.Pod != nil && !stays(p, s.pod.Pod):
		return step{do: removePod}
	case s.strays > 0:
		return step{do: sweep}
	}
	return alone(p, s, deleted)
}

// stays reports whether a pod is left beside the unstaging pod until that has done its work: it keeps the volumes of
// the claims on the node. Without it they leave before the unstaging pod is there, and what is staged over them loses
// what it has not written yet; what comes back may be another device.
func stays(p *moorv1alpha1.PodStaging, pod *corev1.Pod) bool {
	switch p.Status.Phase {
	case isReverting, isStuck:
		return pods.Holds(pod)
	case isUnstaging:
		return p.Status.Pod != nil && pods.Holds(pod)
	}
	return false
}

// has reports whether the volume is staged, or about to be.
func has(p *moorv1alpha1.PodStaging) bool {
	return p.Status.Phase == isStaging || p.Status.Phase == isStaged || p.Status.Phase == isBroken
}

// alone is the step of a staging for which no pod works and none has to go.
func alone(p *moorv1alpha1.PodStaging, s seen, deleted bool) step {
	switch phase := p.Status.Phase; {
	case phase == isUnstaged:
		return step{do: release}
	case deleted && (phase == "" || phase == isFailed) && p.Status.Directory == "":
		return become(p, isUnstaged, "")
	case phase == "" && revoked(p) != "":
		return become(p, isFailed, revoked(p))
	case phase == "":
		return step{do: begin, phase: pods.Staging} // what refuses it is said by those who evaluate it
	case undoes(p, s, deleted):
		return beginning(p, s, pods.Unstaging)
	case p.Status.Pod != nil: // its pod is gone
		out := become(p, phase, p.Status.Message)
		out.next.Pod, out.next.Report = nil, nil
		return out
	}
	return clearing(p, s, deleted)
}

// undoes reports whether the unstaging pod is to run.
func undoes(p *moorv1alpha1.PodStaging, s seen, deleted bool) bool {
	switch p.Status.Phase {
	case isReverting:
		return true
	case isUnstaging:
		return p.Status.Pod != nil // else it has run
	case isStuck:
		return retries(p, s.now)
	}
	return deleted && has(p)
}

// retries reports whether an unstaging that failed is to be tried again now.
func retries(p *moorv1alpha1.PodStaging, now time.Time) bool {
	return p.Status.Phase == isStuck && helper.Due(p, p.Status.HelperTries, now) <= 0
}

// clearing is the step of a staging of which the node has something to clear, and of one at rest.
func clearing(p *moorv1alpha1.PodStaging, s seen, deleted bool) step {
	cleared := p.Status.Report != nil && p.Status.Report.Cleared
	switch phase := p.Status.Phase; {
	case phase == isBroken && cleared && revoked(p) != "":
		return says(p, revoked(p))
	case phase == isBroken && cleared:
		return beginning(p, s, pods.Staging)
	case deleted && (phase == isUnstaging || phase == isFailed) && cleared:
		return become(p, isUnstaged, "")
	case phase == isUnstaging:
		return says(p, fmt.Sprintf("pod-provisioner of node %s is to clear what is left there", p.Spec.NodeName))
	case phase == isStuck:
		return step{after: helper.Due(p, p.Status.HelperTries, s.now)}
	}
	return step{}
}

// revoked says why no staging pod is made any more; empty if one may be.
func revoked(p *moorv1alpha1.PodStaging) string {
	if p.Status.RevokedFor == "" {
		return ""
	}
	return fmt.Sprintf("the right to write volume %s is being taken from node %s at the storage: it is not staged there any more for VolumeAttachment UID %s", p.Spec.VolumeName, p.Spec.NodeName, p.Status.RevokedFor)
}

// beginning is the beginning of a phase, if there are templates for it.
func beginning(p *moorv1alpha1.PodStaging, s seen, phase pods.Phase) step {
	if s.provisioner.Provisioner == nil {
		return awaits(p, s.provisioner.Words, 0)
	}
	return step{do: begin, phase: phase}
}

// lost is the end of a staging whose node is gone: what is left there cannot be cleared, and is gone
// with it. Its node would have deleted it.
func lost(p *moorv1alpha1.PodStaging, deleted bool) step {
	if !deleted {
		return step{do: retire}
	}
	words := fmt.Sprintf("node %s is gone: volume %s is unstaged without it, and what was left there is not cleared", p.Spec.NodeName, p.Spec.VolumeName)
	out := become(p, isUnstaged, words)
	out.tells = words
	return out
}

// keeps is the step of a staged volume whose pod has to run on.
func keeps(p *moorv1alpha1.PodStaging, s seen) step {
	words := helper.Lost(pods.Staging, p.Status.Pod, s.pod)
	switch {
	case words != "":
		out := become(p, isBroken, words)
		out.tells = fmt.Sprintf("volume %s does not answer any more: %s. It is staged again; a pod that holds the old one has to be restarted then", p.Spec.VolumeName, words)
		return out
	case s.pod.Pod.Status.Phase == corev1.PodSucceeded:
		out := become(p, isStaged, "")
		out.next.Pod = nil
		return out
	}
	return step{}
}

// ofPod is the step that the pod of the phase asks for.
func ofPod(p *moorv1alpha1.PodStaging, s seen, phase pods.Phase) step {
	var report *moorv1alpha1.PodReport
	if p.Status.Report != nil {
		report = &p.Status.Report.PodReport
	}
	j := helper.Judge(helper.Case{Phase: phase, Record: p.Status.Pod, Seen: s.pod, Report: report, Timeout: s.provisioner.Timeout(phase), Now: s.now})
	switch j.Verdict {
	case helper.Unmade:
		if words := revoked(p); words != "" && phase == pods.Staging {
			return ofEnd(p, s, helper.Judgement{Verdict: helper.Failed, Words: words})
		}
		if s.provisioner.Provisioner == nil {
			return awaits(p, s.provisioner.Words, j.Again)
		}
		return step{do: makePod, phase: phase}
	case helper.Unnoted:
		out := become(p, p.Status.Phase, p.Status.Message)
		helper.Note(out.next.Pod, s.pod.Pod)
		return out
	case helper.Waits:
		return awaits(p, j.Words, j.Again)
	}
	return ofEnd(p, s, j)
}

// ofEnd is what follows from the end of the pod of the phase, or from its being ready.
func ofEnd(p *moorv1alpha1.PodStaging, s seen, j helper.Judgement) step {
	if p.Status.Phase == isStaging && j.Verdict != helper.Failed {
		if wrong := s.expected.against(p.Status.Report); wrong != "" {
			j.Verdict, j.Words = helper.Failed, helper.The(pods.Staging, p.Status.Pod)+" "+wrong
		}
	}
	var out step
	failed := j.Verdict == helper.Failed
	switch {
	case p.Status.Phase == isStaging && failed:
		out = leaves(p, isReverting, j.Words)
		out.tells = fmt.Sprintf("volume %s cannot be staged on node %s: %s", p.Spec.VolumeName, p.Spec.NodeName, j.Words)
	case p.Status.Phase == isStaging:
		if out = become(p, isStaged, ""); j.Verdict == helper.Succeeded {
			out.next.Pod = nil
		}
		if heals(p) {
			out.tells = fmt.Sprintf("volume %s is staged again on node %s: restart this pod if it holds the old one", p.Spec.VolumeName, p.Spec.NodeName)
		}
	case failed:
		words := j.Words
		if p.Status.Phase == isReverting {
			words = helper.Left(p.Status.Message, j.Words)
		}
		out = stuck(become(p, isStuck, words), s.now)
		out.tells = fmt.Sprintf("volume %s cannot be unstaged from node %s: %s", p.Spec.VolumeName, p.Spec.NodeName, words)
	case p.Status.Phase == isReverting:
		out = become(p, isFailed, p.Status.Message)
	default:
		out = become(p, isUnstaging, "the volume is being unstaged")
		out.next.Pod = nil // so it is known to have done its work: it is a stray from now on
	}
	out.ended = &j
	return out
}

// against says what is wrong with what a staging pod has left; empty if nothing is.
func (e expected) against(r *moorv1alpha1.StagingReport) string {
	switch {
	case r == nil || r.VolumeMode == "":
		return "has left no directory and no block device at /pav/volume"
	case r.VolumeMode != e.mode:
		return fmt.Sprintf("has left a volume of mode %s at /pav/volume, and %s is asked for", r.VolumeMode, e.mode)
	case r.VolumeMode == corev1.PersistentVolumeBlock && e.bytes > 0 && r.SizeBytes != e.bytes:
		return fmt.Sprintf("has left a block device of %d bytes at /pav/volume, and the volume has %d", r.SizeBytes, e.bytes)
	}
	return ""
}

// healing is how the message of a volume begins that is staged again.
const healing = "the volume is staged again"

func heals(p *moorv1alpha1.PodStaging) bool { return strings.HasPrefix(p.Status.Message, healing) }

// become is a write of a phase and a message. A pod that is recorded stays so until it is gone.
func become(p *moorv1alpha1.PodStaging, phase moorv1alpha1.PodStagingPhase, message string) step {
	next := p.Status.DeepCopy()
	next.Phase, next.Message = phase, message
	return step{do: write, next: *next}
}

// stuck counts in a write of an unstaging that has failed that it has.
func stuck(s step, now time.Time) step {
	s.next.HelperTries = helper.FailedAgain(s.next.HelperTries, now)
	return s
}

// leaves is a write of a phase in which the unstaging pod runs once the staging pod is gone, or stays. That is
// recorded without its UID, as one that is about to be made: its node does not clear /pav then,
// which the unstaging pod is to find as it was left.
func leaves(p *moorv1alpha1.PodStaging, phase moorv1alpha1.PodStagingPhase, message string) step {
	out := become(p, phase, message)
	out.next.Pod.UID = ""
	return out
}

// says is a write of a message, or a wait if the status has it.
func says(p *moorv1alpha1.PodStaging, message string) step {
	if p.Status.Message == message {
		return step{}
	}
	return become(p, p.Status.Phase, message)
}

// awaits is a wait for which the message says what is waited for, unless it has to say something that is
// needed later.
func awaits(p *moorv1alpha1.PodStaging, words string, after time.Duration) step {
	out := step{}
	if p.Status.Phase != isReverting && !heals(p) {
		out = says(p, words)
	}
	out.after = after
	return out
}

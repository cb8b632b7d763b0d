package helper

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// reportGrace is how long a pod that has ended waits for the report of its node.
const reportGrace = 30 * time.Second

// Seen is what was seen of the pod that a status records.
type Seen struct {
	// Pod is nil if it is not there, by what the API server itself says.
	Pod *corev1.Pod
	// Foreign says that a pod which was not made for this work has its name.
	Foreign bool
	// NodeGone is true if there is no Node any more where the pod is.
	NodeGone bool
}

// Verdict is what a pod has come to.
type Verdict int

// The verdicts.
const (
	// Waits: it has not come to an end.
	Waits Verdict = iota
	// Unmade: it was recorded, and is to be made.
	Unmade
	// Unnoted: there is something about it that the record does not have.
	Unnoted
	// Succeeded: it has done its work, and what it has left is known.
	Succeeded
	// Ready: it has done its work, and runs on.
	Ready
	// Failed: it has not done its work, and will not.
	Failed
)

// Judgement is a verdict on a pod, in words.
type Judgement struct {
	Verdict
	// Words say what it waits for, or why it has failed.
	Words string
	// Again is when to look again though nothing happens; 0 if it has ended.
	Again time.Duration
}

// Case is all that a pod is judged by.
type Case struct {
	Phase   pods.Phase
	Record  *moorv1alpha1.HelperPod
	Seen    Seen
	Report  *moorv1alpha1.PodReport
	Timeout time.Duration
	Now     time.Time
	// NotOn is set of a pod that has no /pav: that it has ended well says all, as far as it has not run
	// on this node.
	NotOn string
}

// Judge says what the pod of a record has come to. A report counts only if it is of that pod. A pod
// that another has deleted has failed, as one whose node is gone.
func Judge(c Case) Judgement {
	pod := c.Seen.Pod
	left := c.Record.Since.Add(c.Timeout).Sub(c.Now)
	switch {
	case pod == nil:
		return c.absent(left)
	case c.Record.UID != pod.UID || c.Record.NodeName != pod.Spec.NodeName:
		return Judgement{Verdict: Unnoted, Again: left}
	}
	if j, judged := c.alone(); judged {
		return j
	}
	report := c.report()
	switch {
	case pods.Ended(pod):
		return c.over(report)
	case report != nil && report.Problem != "":
		return c.unusable(report)
	case c.Seen.NodeGone:
		return c.lost()
	case !pod.DeletionTimestamp.IsZero():
		return c.failed("is being deleted by another before it has done its work", c.said())
	case c.Phase == pods.Staging && report != nil && report.Ready:
		return Judgement{Verdict: Ready}
	case left <= 0:
		return c.failed(fmt.Sprintf("has not ended within %s", c.Timeout), stands(pod), c.said())
	}
	out := Judgement{Waits, The(c.Phase, c.Record) + " runs", left}
	if wants := Wants(pod); wants != "" {
		out.Words = because(The(c.Phase, c.Record)+" does not run", wants)
	}
	return out
}

// absent judges a pod that is not there.
func (c Case) absent(left time.Duration) Judgement {
	switch {
	case c.Record.UID != "":
		return c.failed("was deleted by another before it had done its work")
	case c.Seen.Foreign && left > 0:
		return Judgement{Waits, The(c.Phase, c.Record) + " cannot be made: another pod has its name, delete that one", left}
	case c.Seen.Foreign:
		return c.failed("could not be made", "another pod has its name, delete that one")
	case left > 0:
		return Judgement{Unmade, "", left}
	}
	return c.failed(fmt.Sprintf("has not ended within %s", c.Timeout), stands(nil))
}

// over judges a pod whose work has ended.
func (c Case) over(report *moorv1alpha1.PodReport) Judgement {
	pod := c.Seen.Pod
	if wait := c.awaits(); report == nil && !c.Seen.NodeGone && wait > 0 {
		return Judgement{Waits, fmt.Sprintf("%s has ended, and pod-provisioner of node %s is to read what it has left", The(c.Phase, c.Record), pod.Spec.NodeName), wait}
	}
	switch {
	case report != nil && report.Problem != "":
		return c.unusable(report)
	case pods.Outcome(pod) == corev1.PodFailed:
		return c.failed("failed", c.said(), failure(pod))
	case pods.Held(pod) && pod.Status.Phase == corev1.PodSucceeded:
		return c.unheld()
	case report != nil && pods.Held(pod):
		return Judgement{Verdict: Ready}
	case report != nil:
		return Judgement{Verdict: Succeeded}
	case c.Seen.NodeGone:
		return c.lost()
	}
	return c.failed(fmt.Sprintf("has ended, but pod-provisioner of node %s does not say what it has left: is it running there?", pod.Spec.NodeName))
}

// alone judges a pod that says all by its end, if it is where it must not be or runs no more. One that was taken away
// ends well, too, if its containers take the signal for the end of their work.
func (c Case) alone() (j Judgement, judged bool) {
	pod := c.Seen.Pod
	switch {
	case c.NotOn == "":
		return Judgement{}, false
	case pod.Spec.NodeName == c.NotOn:
		return c.failed(fmt.Sprintf("is on node %s, which it must not run on", c.NotOn)), true
	case !pods.Ended(pod):
		return Judgement{}, false
	case pod.Status.Phase == corev1.PodFailed:
		return c.failed("failed", failure(pod)), true
	case !pod.DeletionTimestamp.IsZero():
		return c.failed("was deleted by another before its end was seen"), true
	case slices.ContainsFunc(pod.Status.Conditions, func(d corev1.PodCondition) bool {
		return d.Type == corev1.DisruptionTarget && d.Status == corev1.ConditionTrue
	}):
		return c.failed("was evicted before it had done its work"), true
	case !completed(pod):
		return c.failed("has ended, and not each of its containers with exit code 0"), true
	}
	return Judgement{Verdict: Succeeded}, true
}

// completed reports whether each container of a pod has ended with exit code 0, those that run beside the others
// aside.
func completed(pod *corev1.Pod) bool {
	ended := map[string]bool{}
	for _, s := range containers(pod) {
		ended[s.Name] = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	}
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			beside := all[i].RestartPolicy != nil && *all[i].RestartPolicy == corev1.ContainerRestartPolicyAlways
			if !beside && !ended[all[i].Name] {
				return false
			}
		}
	}
	return len(pod.Spec.Containers) > 0
}

func (c Case) unusable(report *moorv1alpha1.PodReport) Judgement {
	return c.failed("has left something in /pav that cannot be used", report.Problem)
}

// unheld judges a pod that had to keep the volumes of its claims on the node, and has ended.
func (c Case) unheld() Judgement {
	return c.failed(fmt.Sprintf("has ended with its container %s, and the volumes of its claims have left the node", pods.HoldName))
}

func (c Case) lost() Judgement {
	return c.failed(fmt.Sprintf("is lost: its node %s is gone", c.Seen.Pod.Spec.NodeName))
}

func (c Case) failed(how string, words ...string) Judgement {
	return Judgement{Verdict: Failed, Words: because(The(c.Phase, c.Record)+" "+how, words...)}
}

// report is the report, if it is of the pod.
func (c Case) report() *moorv1alpha1.PodReport {
	if c.Report == nil || c.Report.PodUID == "" || c.Report.PodUID != c.Record.UID {
		return nil
	}
	return c.Report
}

// said is what the pod has left in /pav/error.
func (c Case) said() string {
	if r := c.report(); r != nil {
		return r.Error
	}
	return ""
}

// awaits is how long the report of a pod that has ended is still waited for.
func (c Case) awaits() time.Duration {
	end := c.Record.Since.Time
	for _, s := range containers(c.Seen.Pod) {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	until := end.Add(reportGrace)
	if pods.Outcome(c.Seen.Pod) == corev1.PodSucceeded && until.Before(c.Record.Since.Add(c.Timeout)) {
		until = c.Record.Since.Add(c.Timeout)
	}
	return until.Sub(c.Now)
}

// Lost says why a pod that has to run on does so no more; empty if it does. A pod that has ended
// well has left its work behind, and is no loss, unless that is of no use without the volumes of its claims.
func Lost(phase pods.Phase, record *moorv1alpha1.HelperPod, s Seen) string {
	c := Case{Phase: phase, Record: record, Seen: s}
	switch {
	case s.Pod == nil:
		return c.failed("was deleted by another").Words
	case pods.Outcome(s.Pod) == corev1.PodFailed:
		return c.failed("failed", failure(s.Pod)).Words
	case pods.Held(s.Pod) && s.Pod.Status.Phase == corev1.PodSucceeded:
		return c.unheld().Words
	case s.Pod.Status.Phase == corev1.PodSucceeded:
		return ""
	case !s.Pod.DeletionTimestamp.IsZero():
		return c.failed("is being deleted by another").Words
	}
	return ""
}

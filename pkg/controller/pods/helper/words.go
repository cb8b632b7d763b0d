package helper

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// mostWords is how much of what a container said at its end is told.
const mostWords = 300

// The is how messages name the pod of a phase.
func The(phase pods.Phase, pod *moorv1alpha1.HelperPod) string {
	return fmt.Sprintf("the %s pod %s/%s", phase, pod.Namespace, pod.Name)
}

// Wants says what a pod waits for that a person may have to see to; empty if it takes its course.
func Wants(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return "it is not scheduled: " + cmp.Or(c.Message, c.Reason)
			}
		}
		return ""
	}
	for _, s := range containers(pod) {
		w := s.State.Waiting
		if w == nil || slices.Contains(ordinary, w.Reason) {
			continue
		}
		out := fmt.Sprintf("its container %s waits: %s", s.Name, w.Reason)
		if w.Message != "" {
			out += ": " + shortened(w.Message)
		}
		if last := s.LastTerminationState.Terminated; last != nil {
			out += "; before, it " + ended(last)
		}
		return out
	}
	return ""
}

// ordinary are the reasons for which each container waits for a while.
var ordinary = []string{"", "ContainerCreating", "PodInitializing"}

// stands says what a pod that is late was waiting for, or doing.
func stands(pod *corev1.Pod) string {
	if pod == nil {
		return "it could not be made"
	}
	if wants := Wants(pod); wants != "" {
		return wants
	}
	if pod.Spec.NodeName == "" {
		return "it is not scheduled"
	}
	for _, s := range containers(pod) {
		if s.State.Waiting != nil && s.State.Waiting.Reason == "ContainerCreating" {
			return fmt.Sprintf("its container %s is still being created on node %s", s.Name, pod.Spec.NodeName)
		}
	}
	for _, s := range containers(pod) {
		if s.State.Running != nil {
			return fmt.Sprintf("its container %s runs on node %s", s.Name, pod.Spec.NodeName)
		}
	}
	return fmt.Sprintf("node %s says %s of it", pod.Spec.NodeName, cmp.Or(string(pod.Status.Phase), "nothing"))
}

// failure says how a pod that has failed ended, without what it said in /pav/error.
func failure(pod *corev1.Pod) string {
	var out []string
	if pod.Status.Reason != "" || pod.Status.Message != "" {
		out = append(out, strings.TrimSuffix(pod.Status.Reason+": "+shortened(pod.Status.Message), ": "))
	}
	for _, s := range containers(pod) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			out = append(out, fmt.Sprintf("container %s %s", s.Name, ended(t)))
		}
	}
	return strings.Join(out, "; ")
}

// ended says how a container ended, with its last words.
func ended(t *corev1.ContainerStateTerminated) string {
	out := fmt.Sprintf("ended with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		out += " (" + t.Reason + ")"
	}
	if words := lastWords(t.Message); words != "" {
		out += ": " + words
	}
	return out
}

func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// shortened is the beginning of a text.
func shortened(text string) string {
	if r := []rune(strings.TrimSpace(text)); len(r) > mostWords {
		return string(r[:mostWords]) + "..."
	}
	return strings.TrimSpace(text)
}

// lastWords is the end of a text: the last line of a log says most.
func lastWords(text string) string {
	if r := []rune(strings.TrimSpace(text)); len(r) > mostWords {
		return "..." + string(r[len(r)-mostWords:])
	}
	return strings.TrimSpace(text)
}

// because joins words that can be empty.
func because(what string, words ...string) string {
	for _, w := range words {
		if w = strings.TrimSpace(w); w != "" {
			what += ": " + w
		}
	}
	return what
}

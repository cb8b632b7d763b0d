package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

const (
	// HoldName is the name of the container that keeps a staging pod when its others have ended. A node gives the
	// volumes of a pod back once none of its containers runs, and what is staged over the volume of a claim is of no
	// use without that.
	HoldName = "pav-hold"
	// DefaultHoldImage does nothing until it is told to end. It is Kubernetes' own, with which container runtimes keep
	// the namespaces of pods.
	DefaultHoldImage = "registry.k8s.io/pause:3.10.1"
	// holdUser is the user of that image.
	holdUser = 65535
)

// hold gives a staging pod that uses claims its container HoldName, if there is an image for it.
func hold(s *corev1.PodSpec, h Helper) {
	if h.Phase != Staging || h.HoldImage == "" || !slices.ContainsFunc(s.Volumes, leaves) {
		return
	}
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	s.Containers = append(s.Containers, corev1.Container{
		Name: HoldName, Image: h.HoldImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{Requests: small, Limits: small},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(holdUser)), RunAsGroup: ptr.To(int64(holdUser)),
			ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	})
}

// leaves reports whether the node gives a volume back when the pod has ended, and something else may then have it.
func leaves(v corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
}

func isHold(c corev1.Container) bool { return c.Name == HoldName }

// Held reports whether a pod has the container HoldName.
func Held(pod *corev1.Pod) bool { return slices.ContainsFunc(pod.Spec.Containers, isHold) }

// Outcome is the phase that a pod would have without the container HoldName: Succeeded or Failed when all others have
// ended for good. Of a pod without it, it is the pod's own.
func Outcome(pod *corev1.Pod) corev1.PodPhase {
	phase := pod.Status.Phase
	if !Held(pod) || phase == corev1.PodFailed {
		return phase
	}
	codes := map[string]int32{}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			codes[s.Name] = s.State.Terminated.ExitCode
		}
	}
	failed := false
	for _, c := range pod.Spec.Containers {
		code, ended := codes[c.Name]
		if isHold(c) {
			continue
		}
		if !ended || pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || code != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			return phase
		}
		failed = failed || code != 0
	}
	if failed {
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// Ended reports whether all containers of a pod but HoldName have ended for good.
func Ended(pod *corev1.Pod) bool {
	phase := Outcome(pod)
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// Holds reports whether nothing of a pod runs any more but the container HoldName, which keeps the volumes of its
// claims on the node.
func Holds(pod *corev1.Pod) bool {
	return Held(pod) && Ended(pod) && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero()
}

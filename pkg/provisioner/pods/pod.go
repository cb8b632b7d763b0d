package pods

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// DefaultRoot is the directory of the nodes beneath which all helper pods have theirs.
	DefaultRoot = "/var/lib/moor/pav"
	// MountPath is where the containers of a helper pod find the directory by which they speak with
	// Moor.
	MountPath = "/pav"
	// VolumeName is the name of that volume in the pod.
	VolumeName = "pav"
	// DefaultNamespace is where a helper pod runs whose template names none.
	DefaultNamespace = "default"
)

// The files beneath MountPath.
const (
	FileHandle   = "handle"
	FileCapacity = "capacity"
	FileReady    = "ready"
	FileError    = "error"
	FileVolume   = "volume"
)

// PodName is the name of the pod of a phase of a dynamic volume, by the UID of its claim.
func PodName(phase Phase, claim types.UID) string {
	return fmt.Sprintf("pav-volume-%s-pod-%s", phase, claim)
}

// StagingName is the name of what stages a volume for a pod: the PodStaging and the directory of
// its pods; id is short and belongs to the volume, the node and the pod.
func StagingName(id string) string { return "pav-volume-stage-" + id }

// StagingPodName is the name of the staging or unstaging pod of it.
func StagingPodName(phase Phase, id string) string {
	return fmt.Sprintf("pav-volume-%s-pod-%s", phase, id)
}

// RevocationName is the name of a revocation and of its pod, by the UID of what asks for it; id is short and belongs to
// that.
func RevocationName(id string) string { return "pav-volume-revocation-pod-" + id }

// Helper is what a pod of a template is made for.
type Helper struct {
	Phase Phase
	// Name of the pod. A name in the template does not count.
	Name string
	// Root is the directory of the nodes beneath which all helper pods have theirs, and Directory
	// the name of this one's; empty: it has none, and no /pav.
	Root, Directory string
	// HoldImage is the image of the container that keeps a staging pod which uses claims, as long as it is there;
	// empty: it has none, and its claims leave the node with the end of its containers.
	HoldImage string
	// NodeName is where it runs; empty: where the scheduler says. NotOn is a node where it must not run.
	NodeName, NotOn string
	// Labels are added to those of the template.
	Labels map[string]string
	// Owner is what the pod works for, which is cluster-scoped; the pod goes with it.
	Owner metav1.OwnerReference
}

// Namespace is where the pod of a template runs.
func Namespace(t *corev1.PodTemplateSpec) string {
	if t.Namespace == "" {
		return DefaultNamespace
	}
	return t.Namespace
}

// Pod is the pod that is to be created. /pav is the first volume and the first mount of each
// container, and travels both ways for the privileged containers of staging and unstaging, so that
// what they mount there is seen on the node. A template without restartPolicy gets Never: with the
// API's own default no pod would ever end.
func Pod(t *corev1.PodTemplateSpec, h Helper) (*corev1.Pod, error) {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.Name, Namespace: Namespace(t), OwnerReferences: []metav1.OwnerReference{h.Owner},
			Labels: map[string]string{}, Annotations: t.Annotations,
		},
		Spec: *t.Spec.DeepCopy(),
	}
	for k, v := range t.Labels {
		out.Labels[k] = v
	}
	for k, v := range h.Labels {
		out.Labels[k] = v
	}
	s := &out.Spec
	if err := free(s); err != nil {
		return nil, err
	}
	if s.RestartPolicy == "" {
		s.RestartPolicy = corev1.RestartPolicyNever
	}
	if h.NodeName != "" {
		s.NodeName = h.NodeName
	}
	if err := keepOff(s, h.NotOn); err != nil {
		return nil, err
	}
	if h.Directory != "" {
		mount(s, h)
	}
	hold(s, h)
	return out, nil
}

// keepOff keeps a pod off a node, beside what the template says of where it runs.
func keepOff(s *corev1.PodSpec, node string) error {
	if node == "" {
		return nil
	}
	if s.NodeName == node {
		return fmt.Errorf("the pod template binds the pod to node %s, which is the one that it must not run on", node)
	}
	if s.Affinity == nil {
		s.Affinity = &corev1.Affinity{}
	}
	if s.Affinity.NodeAffinity == nil {
		s.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	to := s.Affinity.NodeAffinity
	not := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}
	if to.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		to.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{not}}}}
		return nil
	}
	terms := to.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms { // one of them is enough for the scheduler; an empty one lets it run nowhere
		if len(terms[i].MatchFields)+len(terms[i].MatchExpressions) > 0 {
			terms[i].MatchFields = append(terms[i].MatchFields, not)
		}
	}
	return nil
}

// mount gives a pod its /pav.
func mount(s *corev1.PodSpec, h Helper) {
	s.Volumes = slices.Insert(s.Volumes, 0, corev1.Volume{Name: VolumeName, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path.Join(h.Root, h.Directory), Type: ptr.To(corev1.HostPathDirectoryOrCreate)},
	}})
	stages := h.Phase == Staging || h.Phase == Unstaging
	for _, all := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range all {
			mount := corev1.VolumeMount{Name: VolumeName, MountPath: MountPath}
			if stages && privileged(&all[i]) {
				mount.MountPropagation = ptr.To(corev1.MountPropagationBidirectional)
			}
			all[i].VolumeMounts = slices.Insert(all[i].VolumeMounts, 0, mount)
		}
	}
}

// free reports what stands where something that the pod is given is to be.
func free(s *corev1.PodSpec) error {
	for i := range s.Volumes {
		if s.Volumes[i].Name == VolumeName {
			return fmt.Errorf("the pod template has a volume named %s, which is the name of the one that it is given: choose another", VolumeName)
		}
	}
	for _, all := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range all {
			if isHold(all[i]) {
				return fmt.Errorf("the pod template has a container named %s, which is the name of one that pods are given: choose another", HoldName)
			}
			for _, m := range all[i].VolumeMounts {
				if path.Clean(m.MountPath) == MountPath {
					return fmt.Errorf("container %s of the pod template mounts volume %s at %s, where the directory is that it is given: choose another place", all[i].Name, m.Name, MountPath)
				}
			}
		}
	}
	return nil
}

func privileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

package pods

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestPod: where a pod runs, what it is called, and how it gets /pav.
func TestPod(t *testing.T) {
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", GenerateName: "mine-", Namespace: "ns", Labels: map[string]string{"a": "b", "l": "theirs"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"f"}},
		Spec: corev1.PodSpec{
			NodeName: "other", Volumes: []corev1.Volume{{Name: "v"}},
			InitContainers: []corev1.Container{{Name: "i"}},
			Containers:     []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}, SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}},
		},
	}
	before := template.DeepCopy()
	h := Helper{Phase: Staging, Name: StagingPodName(Staging, "x"), Root: "/root", Directory: StagingName("x"), NodeName: "n", Labels: map[string]string{"l": "ours"}, Owner: metav1.OwnerReference{UID: "o"}}
	pod, err := Pod(template, h)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "pav-volume-staging-pod-x" || pod.GenerateName != "" || pod.Namespace != "ns" || pod.Labels["l"] != "ours" || pod.Labels["a"] != "b" || pod.Annotations["c"] != "d" || len(pod.Finalizers) > 0 || pod.OwnerReferences[0].UID != "o" {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	s := pod.Spec
	if s.NodeName != "n" || s.RestartPolicy != corev1.RestartPolicyNever || s.Volumes[0].HostPath.Path != "/root/pav-volume-stage-x" || *s.Volumes[0].HostPath.Type != corev1.HostPathDirectoryOrCreate {
		t.Errorf("%+v", s)
	}
	if m := s.InitContainers[0].VolumeMounts; len(m) != 1 || m[0].MountPath != "/pav" || m[0].MountPropagation != nil {
		t.Errorf("the init container mounts %+v", m)
	}
	if m := s.Containers[0].VolumeMounts; len(m) != 2 || m[0].MountPath != "/pav" || *m[0].MountPropagation != corev1.MountPropagationBidirectional || m[1].MountPath != "/v" {
		t.Errorf("the container mounts %+v", m)
	}
	if !reflect.DeepEqual(template, before) {
		t.Error("the template was changed")
	}
	h.Phase, h.NodeName, template.Namespace, template.Spec.RestartPolicy = Creation, "", "", corev1.RestartPolicyOnFailure
	if pod, err = Pod(template, h); err != nil || pod.Namespace != "default" || pod.Spec.NodeName != "other" || pod.Spec.Containers[0].VolumeMounts[0].MountPropagation != nil || pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("%v: %+v", err, pod)
	}
	for name, change := range map[string]func(*corev1.PodSpec){
		"a container of the name of the one that keeps": func(s *corev1.PodSpec) { s.Containers[0].Name = "pav-hold" },
		"a volume named pav":                            func(s *corev1.PodSpec) { s.Volumes = append(s.Volumes, corev1.Volume{Name: "pav"}) },
		"a mount at /pav": func(s *corev1.PodSpec) {
			s.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/pav/"}}
		},
	} {
		other := template.DeepCopy()
		change(&other.Spec)
		if _, err := Pod(other, h); err == nil || !strings.Contains(err.Error(), "choose another") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if name := RevocationName("1234567890123456-1234567890123456"); len(name) > 63 {
		t.Errorf("%s is too long for a host name", name)
	}
	for _, phase := range []Phase{Validation, Creation, Deletion} {
		if name := PodName(phase, "12345678-1234-1234-1234-123456789012"); len(name) > 63 {
			t.Errorf("%s is too long for a host name", name)
		}
	}
}

// TestNotOn: a pod is kept off one node, beside what its template says of where it runs, and has no /pav without a
// directory.
func TestNotOn(t *testing.T) {
	not := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"dpu-1"}}
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	name := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"dpu-2"}}
	term := func(fields []corev1.NodeSelectorRequirement, labels ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: fields, MatchExpressions: labels}
	}
	for what, tt := range map[string]struct{ has, want []corev1.NodeSelectorTerm }{
		"a template that says nothing": {nil, []corev1.NodeSelectorTerm{term([]corev1.NodeSelectorRequirement{not})}},
		"one with several choices": {
			[]corev1.NodeSelectorTerm{term(nil, zone), term([]corev1.NodeSelectorRequirement{name})},
			[]corev1.NodeSelectorTerm{term([]corev1.NodeSelectorRequirement{not}, zone), term([]corev1.NodeSelectorRequirement{name, not})},
		},
		"one that lets it run nowhere": {[]corev1.NodeSelectorTerm{{}}, []corev1.NodeSelectorTerm{{}}},
	} {
		t.Run(what, func(t *testing.T) {
			template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "dpu-2", Containers: []corev1.Container{{Name: "c"}}}}
			if tt.has != nil {
				template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tt.has}}}
			}
			before := template.DeepCopy()
			pod, err := Pod(template, Helper{Phase: Revocation, Name: "x", Root: "/root", NotOn: "dpu-1"})
			if err != nil {
				t.Fatal(err)
			}
			got := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if !reflect.DeepEqual(got, tt.want) || pod.Spec.NodeName != "dpu-2" || !reflect.DeepEqual(template, before) {
				t.Errorf("%+v on %q, want %+v", got, pod.Spec.NodeName, tt.want)
			}
			if len(pod.Spec.Volumes)+len(pod.Spec.Containers[0].VolumeMounts) > 0 {
				t.Errorf("it has %+v", pod.Spec)
			}
			template.Spec.NodeName = "dpu-1"
			if _, err := Pod(template, Helper{Phase: Revocation, Name: "x", NotOn: "dpu-1"}); err == nil || !strings.Contains(err.Error(), "must not run on") {
				t.Errorf("bound to the node: %v", err)
			}
		})
	}
}

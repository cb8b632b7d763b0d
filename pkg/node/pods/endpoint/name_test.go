package endpoint

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

func TestNameIsOfAllParts(t *testing.T) {
	seen := map[string]string{}
	for what, name := range map[string]string{
		"it": Name("d", "h", "n", "u"), "driver": Name("e", "h", "n", "u"), "handle": Name("d", "i", "n", "u"),
		"node": Name("d", "h", "m", "u"), "pod": Name("d", "h", "n", "v"), "shifted": Name("d", "h\" \"n", "", "u"),
	} {
		if other, is := seen[name]; is {
			t.Errorf("%s and %s have one name", what, other)
		}
		seen[name] = what
	}
	// Those that were made by an earlier version have to be found by this one.
	if got := Name("d", "h", "n", "u"); got != "pav-volume-stage-e833cde4574f57c263bf7ca2815e2f9f" {
		t.Errorf("its name is %s", got)
	}
}

func FuzzName(f *testing.F) {
	f.Add("crypt", "a/handle", "n1", "uid")
	f.Add("", "\x00\xff", "..", "/")
	f.Fuzz(func(t *testing.T, driver, handle, node, pod string) {
		name := Name(driver, handle, node, types.UID(pod))
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 || pavdir.CheckName(name) != nil {
			t.Errorf("%q: %v", name, errs)
		}
		id := name[len(pods.StagingName("")):]
		if n := len(pods.StagingPodName(pods.Unstaging, id)); n > validation.DNS1123LabelMaxLength {
			t.Errorf("the name of a pod has %d characters", n)
		}
	})
}

func TestTarget(t *testing.T) {
	p := &moorv1alpha1.PodStaging{Spec: moorv1alpha1.PodStagingSpec{VolumeName: "pv-1", User: moorv1alpha1.StagingUser{UID: "uid-1"}}}
	for mode, want := range map[corev1.PersistentVolumeMode]string{
		corev1.PersistentVolumeFilesystem: target,
		corev1.PersistentVolumeBlock:      "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/uid-1",
	} {
		if got := Target("/var/lib/kubelet", p, mode); got != want {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

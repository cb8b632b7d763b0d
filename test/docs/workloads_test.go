package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// unlisted are the workloads that README's table of processes leaves out, with the reason.
var unlisted = map[string]string{
	"snap-emulator":                "SNAP itself is in its place on real hardware",
	"local-vendor-controller":      "each vendor has a CSI controller of its own",
	"local-driver":                 "it is for one machine without a DPU, and has a page of its own",
	"pod-provisioner-dpu":          "the row is that of pod-provisioner-node",
	"fs-storage-vendor-dpu-plugin": "the row is that of block-storage-vendor-dpu-plugin",
}

// TestReadmeHasTheWorkloads: README's table says how often each process runs, as the
// manifests have it; the table of the components says the same of what is counted.
func TestReadmeHasTheWorkloads(t *testing.T) {
	readme, components := read(t, path("README.md")), read(t, path("docs", "components", "README.md"))
	found := map[string]bool{}
	for _, cluster := range []string{"host", "dpu", "pav", "local"} {
		for _, objects := range manifests(t, cluster) {
			for _, o := range objects {
				switch o := o.(type) {
				case *appsv1.Deployment:
					if found[o.Name] = true; unlisted[o.Name] == "" {
						times := replicas(*o.Spec.Replicas)
						checkRow(t, readme, o.Spec.Template.Spec, times)
						checkRow(t, components, o.Spec.Template.Spec, times)
					}
				case *appsv1.DaemonSet:
					if found[o.Name] = true; unlisted[o.Name] == "" {
						checkRow(t, readme, o.Spec.Template.Spec, "every "+map[string]string{"host": "host", "dpu": "DPU", "pav": "node"}[cluster])
					}
				}
			}
		}
	}
	if len(found) < 8 {
		t.Errorf("only %v found: the search is wrong", found)
	}
	for name := range unlisted {
		if !found[name] {
			t.Errorf("there is no workload %s: it is in the list for nothing", name)
		}
	}
}

func replicas(n int32) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// checkRow looks for the row of the pod's first program, in its mode.
func checkRow(t *testing.T, page string, pod corev1.PodSpec, times string) {
	t.Helper()
	c := pod.Containers[0]
	link, mode := "["+c.Command[0]+"](", ""
	for _, arg := range c.Args {
		if m, ok := strings.CutPrefix(arg, "--mode="); ok {
			mode = "`--mode " + m + "`"
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "|") && strings.Contains(line, link) && strings.Contains(line, mode) && strings.Contains(line, times) {
			return
		}
	}
	t.Errorf("no row of the table says that %s %s runs on %q, as its manifest has it", c.Command[0], mode, times)
}

// TestNothingIsVouchedForInVain: the CSIDriver of the reference vendor says that a detach is a
// proof where its controller has a target alone. Without one a DPU that is silent writes on.
func TestNothingIsVouchedForInVain(t *testing.T) {
	vouches, controllers, target := false, 0, false
	for _, objects := range manifests(t, "dpu") {
		for _, o := range objects {
			switch o := o.(type) {
			case *storagev1.CSIDriver:
				vouches = vouches || o.Annotations[storagev1alpha1.AnnotationRevokes] == "true"
			case *appsv1.Deployment:
				for _, c := range o.Spec.Template.Spec.Containers {
					if slices.Contains(c.Args, "--mode=controller") && c.Command[0] == "local-vendor" {
						controllers++
						target = slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--target-address=") })
					}
				}
			}
		}
	}
	if controllers != 1 {
		t.Fatalf("there are %d controllers of the reference vendor: the search is wrong", controllers)
	}
	if vouches && !target {
		t.Error("the CSIDriver vouches that the storage revokes, and the vendor's controller of the same directory has no target")
	}
}

// TestNodesAreNotLabelledWithPlaces: what a manifest selects nodes by is a label that a person gives them, and
// no key that the driver has the kubelet label them with: it refuses the driver where they differ.
func TestNodesAreNotLabelledWithPlaces(t *testing.T) {
	var keys []string
	for _, objects := range manifests(t, "host") {
		for _, o := range objects {
			var pod corev1.PodSpec
			switch o := o.(type) {
			case *appsv1.DaemonSet:
				pod = o.Spec.Template.Spec
			case *appsv1.Deployment:
				pod = o.Spec.Template.Spec
			}
			keys = slices.AppendSeq(keys, maps.Keys(pod.NodeSelector))
			if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
				continue
			}
			for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				for _, expression := range term.MatchExpressions {
					keys = append(keys, expression.Key)
				}
			}
		}
	}
	if !slices.Contains(keys, "storage.moor.dev/dpu") {
		t.Fatalf("nodes are selected by %q: the search is wrong", keys)
	}
	for _, place := range []string{moorv1alpha1.TopologyDPU, moorv1alpha1.TopologyDPUCluster} {
		if slices.Contains(keys, place) {
			t.Errorf("nodes are selected by %s, with which the kubelet labels them for the driver", place)
		}
	}
}

// TestPortsHaveNames that an API server takes: a manifest with another is refused as a whole.
func TestPortsHaveNames(t *testing.T) {
	named := 0
	for _, cluster := range []string{"host", "dpu", "pav", "local"} {
		for file, objects := range manifests(t, cluster) {
			for _, o := range objects {
				for _, c := range templateOf(o).Spec.Containers {
					for _, port := range c.Ports {
						named++
						for _, wrong := range validation.IsValidPortName(port.Name) {
							t.Errorf("%s: port %s of container %s: %s", file, port.Name, c.Name, wrong)
						}
					}
				}
			}
		}
	}
	if named < 10 {
		t.Errorf("only %d ports found: the search is wrong", named)
	}
}

func templateOf(o client.Object) corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Spec.Template
	case *appsv1.DaemonSet:
		return o.Spec.Template
	}
	return corev1.PodTemplateSpec{}
}

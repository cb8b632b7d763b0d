package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kinds "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

func rootOf(t *testing.T) string {
	t.Helper()
	root, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// objects are those of a text, by kind and name.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if len(o) == 0 {
			continue
		}
		key := fmt.Sprint(o["kind"], "/", o["metadata"].(map[string]any)["name"])
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = o
	}
	return out
}

// manifests are the objects of files of deploy/.
func manifests(t *testing.T, patterns ...string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(rootOf(t), "deploy", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(out, objects(t, string(raw)))
		}
	}
	return out
}

// helms are the labels that only a release has.
var helms = []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"}

// unlabelled removes those labels, wherever they are.
func unlabelled(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range []string{"labels", "matchLabels"} {
			labels, _ := value[key].(map[string]any)
			for _, label := range helms {
				delete(labels, label)
			}
			if labels != nil && len(labels) == 0 {
				delete(value, key)
			}
		}
		for _, v := range value {
			unlabelled(v)
		}
	case []any:
		for _, v := range value {
			unlabelled(v)
		}
	}
}

// apart are the manifests that no release of a whole cluster has: the namespace is made by
// helm install, and what a vendor brings is the vendor's.
func apart(name string) bool {
	return strings.HasPrefix(name, "Namespace/") || strings.Contains(name, "local") || strings.Contains(name, "pod-provisioner") ||
		strings.HasSuffix(name, "/snap-emulator") || strings.HasSuffix(name, "-storage-vendor-dpu-plugin")
}

// TestChartIsTheManifests: with its defaults the chart has the objects of deploy/, field by field.
func TestChartIsTheManifests(t *testing.T) {
	root := rootOf(t)
	for name, patterns := range map[string][]string{
		"host":             {"host/*.yaml", "host/attach-controller/*.yaml", "host/workloads/*.yaml"},
		"host-attach-node": {"host/*.yaml", "host/attach-node/*.yaml"},
		"dpu":              {"dpu/*.yaml", "dpu/workloads/*.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			cases, err := valuesOf(root)
			if err != nil {
				t.Fatal(err)
			}
			out, err := render(root, "moor", cases[name], nil)
			if err != nil {
				t.Fatal(err)
			}
			have, want := objects(t, out), manifests(t, patterns...)
			for key, o := range want {
				if apart(key) {
					continue
				}
				unlabelled(o)
				unlabelled(have[key])
				h, _ := yaml.Marshal(have[key])
				w, _ := yaml.Marshal(o)
				if string(h) != string(w) {
					t.Errorf("%s is\n%s\nand in the manifests\n%s", key, h, w)
				}
			}
			for key := range have {
				if want[key] == nil && !strings.HasPrefix(key, "Deployment/") && !strings.HasPrefix(key, "DaemonSet/") && !strings.HasPrefix(key, "PodDisruptionBudget/") {
					t.Errorf("%s is in no manifest", key)
				}
			}
		})
	}
}

// values reads values as helm install --set-json does.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRefused: contradictions are refused in words, before anything is applied.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ values, words string }{
		{"{}", "a release is one component, and these are enabled: []"},
		{"{dpu: {snapNodeDriver: {enabled: true}, blockStorageVendorDpuPlugin: {enabled: true}}}", "these are enabled: [dpu.blockStorageVendorDpuPlugin, dpu.snapNodeDriver]"},
		{"{host: {snapCsiPlugin: {enabled: true}}}", "which half is wanted?"},
		{"{host: {snapHostController: {enabled: true}}}", "targetNamespace is required"},
		{"{host: {snapController: {enabled: true}}}", "dpuClusterSecret is required"},
		{"{host: {snapHostController: {enabled: true, config: {targetNamespace: a, dpuCluster: {tokenFileSecret: s}}}}}", "needs dpuCluster.server"},
		{"{host: {snapHostController: {enabled: true, config: {targetNamespace: a, severalDpuClusters: true, dpuClusterName: east}}}}", "severalDpuClusters needs dpuClusterNamespace and dpuClusterName"},
		{"{dpu: {docaSnap: {enabled: true, image: {tag: x}}}}", "leave that release on NVIDIA's chart"},
		{"{dpu: {nfsStorageVendorDpuPlugin: {enabled: true}}}", "Moor has no plugin nvidia-nfs"},
		{"{cluster: host, host: {snapCsiPlugin: {enabled: true}}}", "host.snapCsiPlugin.enabled is for a release of one component"},
		{"{cluster: host, dpu: {blockStorageVendorDpuPlugin: {enabled: true}}}", "runs in the DPU cluster, and cluster is host"},
		{"{cluster: dpu, snapshots: {enabled: true}}", "snapshots.enabled is for cluster host"},
		{"{cluster: both}", "cluster"},
		{"{cluster: host, attachMode: node}", "attachMode"},
		{"{cluster: host, atachMode: Node}", "atachMode"},
		{"{cluster: host, host: {snapHostController: {replicas: two}}}", "replicas"},
	} {
		_, err := render(rootOf(t), "r", values(t, c.values), nil)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: want %q, have: %v", c.values, c.words, err)
		}
	}
}

// cluster is one in which lookup finds a CSIDriver.
type cluster struct{ driver *unstructured.Unstructured }

func (c cluster) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	drivers := kinds.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}
	if kind != "CSIDriver" {
		return nil, false, fmt.Errorf("the chart looks up a %s", kind)
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[kinds.GroupVersionResource]string{drivers: "CSIDriverList"}, c.driver)
	return client.Resource(drivers), false, nil
}

// TestAttachModeStays: an upgrade that would change attachRequired is refused in words.
func TestAttachModeStays(t *testing.T) {
	for _, c := range []struct {
		mode     string
		required bool
		refused  bool
	}{
		{"Controller", true, false},
		{"Controller", false, true},
		{"Node", false, false},
		{"Node", true, true},
	} {
		there := cluster{&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
			"metadata": map[string]any{"name": "csi.snap.nvidia.com"}, "spec": map[string]any{"attachRequired": c.required},
		}}}
		_, err := render(rootOf(t), "r", values(t, "{cluster: host, deployCrds: false, attachMode: "+c.mode+"}"), there)
		if refused := err != nil && strings.Contains(err.Error(), "cannot be changed"); refused != c.refused {
			t.Errorf("attachMode %s, attachRequired %v: %v", c.mode, c.required, err)
		}
	}
}

// TestCRDs: they are rendered behind a switch only, each as it is in crds/, and stay.
func TestCRDs(t *testing.T) {
	for _, c := range []struct{ values, dir string }{
		{"{cluster: host}", "host"},
		{"{cluster: dpu}", "dpu"},
		{"{dpu: {deployCrds: true, snapNodeDriver: {enabled: true}}}", "dpu"},
		{"{host: {deployCrds: true, snapController: {enabled: true, config: {dpuClusterSecret: s}}}}", "host"},
		{"{dpu: {snapNodeDriver: {enabled: true}}}", ""},
	} {
		out, err := render(rootOf(t), "r", values(t, c.values), nil)
		if err != nil {
			t.Errorf("%s: %v", c.values, err)
			continue
		}
		found := 0
		for key, o := range objects(t, out) {
			if strings.HasPrefix(key, "CustomResourceDefinition/") {
				found++
				if annotations, _ := o["metadata"].(map[string]any)["annotations"].(map[string]any); annotations["helm.sh/resource-policy"] != "keep" {
					t.Errorf("%s would go with the release, and all objects of its kind with it", key)
				}
			}
		}
		files, _ := filepath.Glob(filepath.Join(rootOf(t), "crds", c.dir, "*.yaml"))
		if c.dir == "" {
			files = nil
		}
		if found != len(files) {
			t.Errorf("%s: %d CRDs, crds/%s has %d", c.values, found, c.dir, len(files))
		}
	}
}

// TestSideBySide: two releases of one component share no name, so that one may be there
// beside the next while DPUs are upgraded one by one. But for the CSIDriver, which is one.
func TestSideBySide(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		if !strings.HasPrefix(name, "dpf-") || cases[name]["dpu"] != nil && strings.Contains(fmt.Sprint(cases[name]), "fullnameOverride") {
			continue
		}
		one, err := render(root, "one", cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		two, err := render(root, "two", cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		other := objects(t, two)
		for key := range objects(t, one) {
			if other[key] != nil && !strings.HasPrefix(key, "CSIDriver/") {
				t.Errorf("%s: both releases have %s", name, key)
			}
		}
	}
}

// TestPrivileged: DPF has to be told of a DPUService whose pods are privileged
// (spec.security.privileged), and knows the pods by a label from serviceDaemonSet. So which
// ones these are is known here, and the label reaches the pods.
func TestPrivileged(t *testing.T) {
	root := rootOf(t)
	for name, want := range map[string]bool{"dpf-node-driver": false, "dpf-block-plugin": false, "dpf-fs-plugin": true} {
		cases, err := valuesOf(root)
		if err != nil {
			t.Fatal(err)
		}
		out, err := render(root, name, cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "privileged: true") != want {
			t.Errorf("%s: privileged is not %v", name, want)
		}
		found := 0
		for key, o := range objects(t, out) {
			if !strings.HasPrefix(key, "DaemonSet/") {
				continue
			}
			found++
			labels, _, _ := unstructured.NestedStringMap(o, "spec", "template", "metadata", "labels")
			if labels["svc.dpu.nvidia.com/service"] == "" {
				t.Errorf("%s of %s: the pods lack DPF's label", key, name)
			}
		}
		if found != 1 {
			t.Errorf("%s has %d DaemonSets, DPF fills serviceDaemonSet for one", name, found)
		}
	}
}

// TestImages: each program's image is the component's, else that of its name in the chart's registry.
func TestImages(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"{dpu: {snapNodeDriver: {enabled: true}}}", "ghcr.io/moor-storage/snap-node-driver:dev"},
		{"{cluster: host}", "ghcr.io/moor-storage/snap-csi-plugin-node:dev"},
		{"{cluster: host}", "ghcr.io/moor-storage/snap-csi-plugin-controller:dev"},
		{"{image: {registry: r.example/a}, cluster: host}", "r.example/a/snap-host-controller:dev"},
		{"{image: {tag: v1}, dpu: {snapNodeDriver: {enabled: true}}}", "ghcr.io/moor-storage/snap-node-driver:v1"},
		{"{image: {tag: v1}, dpu: {snapNodeDriver: {enabled: true, image: {repository: r/m}}}}", "r/m:v1"},
		{"{dpu: {fsStorageVendorDpuPlugin: {enabled: true, image: {repository: r/m, tag: 'v2@sha256:00'}}}}", "r/m:v2@sha256:00"},
		{"{host: {snapCsiPlugin: {enabled: true, controller: {enabled: true, externalAttacher: {image: {repository: r/a, tag: v3}}}}}}", "r/a:v3"},
	} {
		out, err := render(rootOf(t), "r", values(t, c.values), nil)
		if err != nil {
			t.Errorf("%s: %v", c.values, err)
		} else if !strings.Contains(out, "image: "+c.want+"\n") {
			t.Errorf("%s: no image %s", c.values, c.want)
		}
	}
}

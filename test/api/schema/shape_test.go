//go:build api

package schema

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// createStrictly makes the object and refuses fields that no schema knows, as
// kubectl does.
func createStrictly(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	return client.WithFieldValidation(clientOf(o.GetKind()), metav1.FieldValidationStrict).Create(t.Context(), o)
}

func TestDefaults(t *testing.T) {
	for _, row := range []struct {
		kind   string
		remove []string
		path   []string
		want   any
	}{
		{"DPUStoragePolicy", []string{"spec.selectionAlgorithm"}, []string{"spec", "selectionAlgorithm"}, "NumberVolumes"},
		{"DPUStoragePolicy", []string{"spec.parameters"}, []string{"spec", "parameters"}, map[string]any{}},
		{"DPUVolume", []string{"spec.parameters"}, []string{"spec", "parameters"}, map[string]any{}},
		{"DPUVolume", []string{"spec.volumeMode"}, []string{"spec", "volumeMode"}, "Filesystem"},
		{"StoragePolicy", []string{"spec.storageSelectionAlg"}, []string{"spec", "storageSelectionAlg"}, "LocalNVolumes"},
		{"DPUVolumeAttachment", nil, []string{"spec", "role"}, "Primary"},
	} {
		t.Run(row.kind+"/"+row.path[1], func(t *testing.T) {
			o := object(t, row.kind)
			for _, path := range row.remove {
				set(t, o, path, nil)
			}
			mustCreate(t, o)
			got, _, err := unstructured.NestedFieldCopy(o.Object, row.path...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%v (-want +got):\n%s", row.path, diff)
			}
		})
	}
}

// TestStatusSubresource: a status in a create or an update of the object is
// dropped, and an update of the status leaves the spec alone.
func TestStatusSubresource(t *testing.T) {
	for kind, row := range map[string]struct {
		status, path string
		want         any
	}{
		"DPUStoragePolicy":    {"{observedGeneration: 7}", "observedGeneration", int64(7)},
		"DPUStorageVendor":    {"{observedGeneration: 7}", "observedGeneration", int64(7)},
		"DPUVolume":           {"{phase: Bound}", "phase", "Bound"},
		"DPUVolumeAttachment": {"{dpuAttached: false, message: words}", "dpuAttached", false},
		"StoragePolicy":       {"{state: Valid}", "state", "Valid"},
		"Volume":              {"{state: Available}", "state", "Available"},
		"VolumeAttachment":    {"{storageAttached: true}", "storageAttached", true},
		"SVVolumeAttachment":  {"{attached: true}", "attached", true},
		"WriterClaim":         {"{phase: Granted, holder: d, epoch: 1}", "phase", "Granted"},
		"DPUStorageNode":      {"{dpu: {snapReady: true}, host: {sequence: 1}}", "dpu", map[string]any{"snapReady": true}},
	} {
		t.Run(kind, func(t *testing.T) {
			o := object(t, kind)
			set(t, o, "status", yamlText(row.status))
			mustCreate(t, o)
			if status, ok := o.Object["status"]; ok {
				t.Errorf("create kept the status %v", status)
			}
			spec := o.DeepCopy().Object["spec"]
			set(t, o, "status", yamlText(row.status))
			o.Object["spec"] = map[string]any{}
			if err := clientOf(kind).Status().Update(t.Context(), o); err != nil {
				t.Fatalf("update status: %v", err)
			}
			got, _, err := unstructured.NestedFieldCopy(o.Object, "status", row.path)
			if err != nil || !cmp.Equal(got, row.want) {
				t.Errorf("status.%s is %v (%v), want %v", row.path, got, err, row.want)
			}
			if diff := cmp.Diff(spec, o.Object["spec"]); diff != "" {
				t.Errorf("the spec changed with the status:\n%s", diff)
			}
		})
	}
}

func TestStorageVendorHasNoStatus(t *testing.T) {
	o := object(t, "StorageVendor")
	mustCreate(t, o)
	if err := clusters.DPU.Status().Update(t.Context(), o); !apierrors.IsNotFound(err) {
		t.Errorf("update of the status: %v, want not found: DPF's StorageVendor has none", err)
	}
}

func TestBadStatus(t *testing.T) {
	for _, row := range []struct{ kind, status, want string }{
		{"DPUVolume", "{phase: Lost}", `Unsupported value: "Lost"`},
		{"StoragePolicy", "{state: Perhaps}", `Unsupported value: "Perhaps"`},
		{"Volume", "{state: Lost}", `Unsupported value: "Lost"`},
		{"SVVolumeAttachment", "{attachError: {message: x}}", "status.attached: Required value"},
		{"DPUStorageVendor", "{dpuClusters: [{name: x}]}", "status.dpuClusters[0].namespace: Required value"},
		{"DPUStorageNode", "{dpu: {functions: [{type: vf, total: 1, free: 1}, {type: vf, total: 2, free: 2}]}}", "Duplicate value"},
		{"WriterClaim", "{phase: Gone}", `Unsupported value: "Gone"`},
		{"WriterClaim", "{phase: Granted, epoch: -1, holder: d}", "should be greater than or equal to 0"},
		{"WriterClaim", "{phase: Granted, epoch: 1}", "a claim that is not Free has a holder"},
		{"WriterClaim", "{phase: Granted, epoch: 1, holder: ''}", "a claim that is not Free has a holder"},
		{"WriterClaim", "{phase: Fencing, epoch: 1}", "a claim that is not Free has a holder"},
		{"WriterClaim", "{phase: Free, receipts: [{kind: Hearsay, holder: d, epoch: 1}]}", `Unsupported value: "Hearsay"`},
		{"WriterClaim", "{phase: Free, receipts: [{kind: DPU, epoch: 1}]}", "holder: Required value"},
	} {
		t.Run(row.kind+"/"+row.want+row.status, func(t *testing.T) {
			o := object(t, row.kind)
			o.SetName(shortened(o.GetName()))
			mustCreate(t, o)
			set(t, o, "status", yamlText(row.status))
			check(t, clientOf(row.kind).Status().Update(t.Context(), o), row.want)
		})
	}
}

// TestTable reads each kind as kubectl get does.
func TestTable(t *testing.T) {
	for kind, want := range map[string][]string{
		"DPUStoragePolicy":    {"Name", "SelectionAlgorithm", "Ready", "Age"},
		"DPUStorageVendor":    {"Name", "StorageClassName", "PluginName", "Ready", "Age"},
		"DPUVolume":           {"Name", "DPUStoragePolicyName", "VolumeMode", "Size", "Ready", "Replicas", "Vendor", "Last Writer", "Age"},
		"DPUVolumeAttachment": {"Name", "DPUVolumeName", "DPUNodeName", "FunctionType", "HotplugFunction", "Role", "Warmth", "Epoch", "Ready", "Age"},
		"StoragePolicy":       {"Name", "State", "Age"},
		"StorageVendor":       {"Name", "StorageClassName", "PluginName", "Age"},
		"Volume":              {"Name", "Vendor", "State", "Age"},
		"VolumeAttachment":    {"Name", "Volume", "Node", "Epoch", "Attached", "Age"},
		"SVVolumeAttachment":  {"Name", "PV", "Node", "Attached", "Age"},
		"WriterClaim":         {"Name", "Volume", "Phase", "Holder", "Epoch", "Age"},
		"DPUStorageNode":      {"Name", "DPU", "Host Alive", "DPU Alive", "SNAP", "Free VFs", "Plugins", "Host Beat", "DPU Beat", "Failover", "Drained", "Age"},
	} {
		t.Run(kind, func(t *testing.T) {
			o := object(t, kind)
			mustCreate(t, o)
			table := tableOf(t, o)
			var got []string
			for _, c := range table.ColumnDefinitions {
				got = append(got, c.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			if len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(want) || table.Rows[0].Cells[0] != o.GetName() {
				t.Errorf("rows: %+v", table.Rows)
			}
		})
	}
}

// TestShortNames: kubectl knows each kind by its short name, and all by their category.
func TestShortNames(t *testing.T) {
	for kind, short := range map[string][]string{
		"DPUStoragePolicy": {"dpusp"}, "DPUStorageVendor": {"dpusv"}, "DPUVolume": {"dpuv"}, "DPUVolumeAttachment": {"dpuva"},
		"DPUStorageNode": {"dpusn"}, "WriterClaim": {"wc"}, "SVVolumeAttachment": {"svva"},
		"StoragePolicy": nil, "StorageVendor": nil, "Volume": nil, "VolumeAttachment": nil,
	} {
		config := clusters.HostConfig
		if good[kind].dpu {
			config = clusters.DPUConfig
		}
		c, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.ServerResourcesForGroupVersion(object(t, kind).GetAPIVersion())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind && !strings.Contains(r.Name, "/") })
		if i < 0 {
			t.Fatalf("%s is not served", kind)
		}
		if r := all.APIResources[i]; !slices.Equal(r.ShortNames, short) || !slices.Equal(r.Categories, []string{"moor"}) {
			t.Errorf("%s has the short names %v and the categories %v", kind, r.ShortNames, r.Categories)
		}
	}
}

func tableOf(t *testing.T, o *unstructured.Unstructured) metav1.Table {
	t.Helper()
	mapping, err := clientOf(o.GetKind()).RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(clusters.HostConfig)
	if good[o.GetKind()].dpu {
		config = rest.CopyConfig(clusters.DPUConfig)
	}
	config.NegotiatedSerializer, config.UserAgent = scheme.Codecs.WithoutConversion(), "schema-test"
	config.GroupVersion = &metav1.Unversioned
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/" + o.GetAPIVersion()
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		path += "/namespaces/" + o.GetNamespace()
	}
	raw, err := c.Get().AbsPath(path, mapping.Resource.Resource, o.GetName()).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestSelectByNode(t *testing.T) {
	for _, node := range []string{"node-x", "node-y"} {
		o := object(t, "VolumeAttachment")
		o.SetName(node)
		set(t, o, "spec.nodeName", node)
		mustCreate(t, o)
	}
	var list storagev1alpha1.VolumeAttachmentList
	err := clusters.DPU.List(t.Context(), &list, client.InNamespace(kit.Namespace), client.MatchingFields{"spec.nodeName": "node-x"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "node-x" {
		t.Errorf("got %v, %v; want node-x alone", list.Items, err)
	}
	err = clusters.DPU.List(t.Context(), &list, client.MatchingFields{"spec.epoch": "1"})
	check(t, err, "field label not supported")
}

// TestStaleGroup: a group that an old document shows is not served.
func TestStaleGroup(t *testing.T) {
	o := object(t, "DPUStorageVendor")
	o.SetAPIVersion("storage.nvidia.com/v1alpha1")
	err := clusters.Host.Create(t.Context(), o)
	if !meta.IsNoMatchError(err) {
		t.Fatalf("got %v, want that no such kind is known", err)
	}
	check(t, err, `no matches for kind "DPUStorageVendor" in version "storage.nvidia.com/v1alpha1"`)
}

// TestExamplesApply applies the public examples of DPF as they are.
func TestExamplesApply(t *testing.T) {
	for dir, c := range map[string]client.Client{"host": clusters.Host, "dpu": clusters.DPU} {
		t.Run(dir, func(t *testing.T) {
			path := filepath.Join("testdata", dir)
			objects, err := kit.ReadManifests(path)
			if err != nil || len(objects) == 0 {
				t.Fatalf("read %s: %d objects, %v", path, len(objects), err)
			}
			strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
			for _, o := range objects {
				namespaced, err := c.IsObjectNamespaced(o)
				if err != nil {
					t.Fatal(err)
				}
				if namespaced && o.GetNamespace() == "" {
					o.SetNamespace("default") // as kubectl does
				}
				err = strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("schema-test"))
				if err != nil {
					t.Errorf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

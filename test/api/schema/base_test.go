//go:build api

package schema

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

var clusters apiserver.Clusters

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m, &clusters)) }

const (
	nvidia = "storage.dpu.nvidia.com/v1alpha1"
	moor   = "storage.moor.dev/v1alpha1"
)

// good holds one acceptable object of each kind, without its name.
var good = map[string]struct {
	group string
	dpu   bool
	spec  string
}{
	"DPUStoragePolicy":    {nvidia, false, `{dpuStorageVendors: [a, b], selectionAlgorithm: Random, parameters: {x: "1"}}`},
	"DPUStorageVendor":    {nvidia, false, `{storageClassName: sc, pluginName: plugin}`},
	"DPUVolume":           {nvidia, false, `{dpuStoragePolicyName: p, parameters: {x: "1"}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeMode: Block}`},
	"DPUVolumeAttachment": {nvidia, false, `{dpuVolumeName: v, dpuNodeName: node-1, functionType: pf, hotplugFunction: true}`},
	"StoragePolicy":       {nvidia, true, `{storageVendors: [a], storageSelectionAlg: Random, storageParameters: {x: "1"}}`},
	"StorageVendor":       {nvidia, true, `{storageClassName: sc, pluginName: plugin}`},
	"Volume":              {nvidia, true, `{request: {capacityRange: {request: 1Gi}, accessModes: [ReadWriteOnce], volumeMode: Block}, storageParameters: {policy: p}}`},
	"VolumeAttachment":    {nvidia, true, `{nodeName: node-1, source: {volumeRef: {name: v}}, functionType: vf, hotplugFunction: false}`},
	"SVVolumeAttachment":  {nvidia, true, `{attacher: driver, nodeName: node-1, source: {persistentVolumeName: pv}}`},
	"WriterClaim":         {moor, true, `{volumeName: v}`},
	"DPUVolumeSnapshot":   {moor, false, `{dpuVolumeName: v, group: {name: g, volumeNames: [v, w]}}`},
	"StorageSnapshot":     {moor, true, `{volumeName: v, group: {name: g, volumeNames: [v, w]}}`},
	"DPUStorageNode":      {moor, false, `{dpuName: d}`},
}

// object returns the good object of a kind under a name of the test's own.
func object(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	base, ok := good[kind]
	if !ok {
		t.Fatalf("no good %s is known", kind)
	}
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nspec: %s\n", base.group, kind, base.spec)
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("good %s: %v", kind, err)
	}
	o.SetName(nameOf(t))
	if kind != "DPUStorageNode" {
		o.SetNamespace(kit.Namespace)
	}
	return o
}

// nameOf is an object name made of the test's.
func nameOf(t *testing.T) string {
	t.Helper()
	keep := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}
	return strings.Trim(strings.Map(keep, t.Name()), "-")
}

func clientOf(kind string) client.WithWatch {
	if good[kind].dpu {
		return clusters.DPU
	}
	return clusters.Host
}

// set changes one field, named by its dotted path; a nil value removes it.
func set(t *testing.T, o *unstructured.Unstructured, path string, value any) {
	t.Helper()
	fields := strings.Split(path, ".")
	if value == nil {
		unstructured.RemoveNestedField(o.Object, fields...)
		return
	}
	if text, ok := value.(yamlText); ok {
		var decoded any
		if err := yaml.Unmarshal([]byte(text), &decoded); err != nil {
			t.Fatalf("value of %s: %v", path, err)
		}
		value = whole(decoded)
	}
	if n, ok := value.(int); ok {
		value = int64(n)
	}
	if err := unstructured.SetNestedField(o.Object, value, fields...); err != nil {
		t.Fatalf("set %s: %v", path, err)
	}
}

// yamlText is a value written as YAML.
type yamlText string

// whole turns the floats of a decoded document into integers.
func whole(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	}
	return v
}

// create makes the object. Nothing removes it: names are the tests' own, and
// the API server ends with them.
func create(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	return clientOf(o.GetKind()).Create(t.Context(), o)
}

func mustCreate(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if err := create(t, o); err != nil {
		t.Fatalf("create: %v", err)
	}
}

// check compares an error with the words wanted in it; "" wants none.
func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted; want an error with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("got error %q, want the words %q", err, want)
	}
}

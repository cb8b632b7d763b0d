package world

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestPad: an object becomes as large as is asked, keeps its other annotations, and
// has room in etcd's and Kubernetes' bounds even if it is a Node.
func TestPad(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]any
	}{
		{name: "none before"},
		{name: "one before", annotations: map[string]any{"a": "b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n"}, "spec": map[string]any{"text": string(make([]byte, 1000))},
			}}
			if tc.annotations != nil {
				o.Object["metadata"].(map[string]any)["annotations"] = tc.annotations
			}
			was := size(t, o)
			if err := pad(o, 10); err != nil {
				t.Fatal(err)
			}
			if now := size(t, o); now < 10*was || now > 10*was+100 {
				t.Errorf("%d bytes of %d", now, was)
			}
			if want := tc.annotations["a"]; want != nil && o.GetAnnotations()["a"] != want {
				t.Errorf("annotations %v", o.GetAnnotations())
			}
		})
	}
	const node, room = 12 << 10, 256 << 10
	if (MostTimes-1)*node > room {
		t.Errorf("a Node that is %d times as large has more annotations than it may", MostTimes)
	}
}

func size(t *testing.T, o *unstructured.Unstructured) int {
	t.Helper()
	raw, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return len(raw)
}

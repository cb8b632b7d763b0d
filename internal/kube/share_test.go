package kube

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// aVolume is the i-th of many DPUVolumes, as a decoder makes it.
func aVolume(t testing.TB, i int) *storagev1alpha1.DPUVolume {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion": "storage.dpu.nvidia.com/v1alpha1", "kind": "DPUVolume",
	"metadata": {"name": "vol-%05d", "namespace": "dpf-operator-system", "uid": "6ae1a13f-1971-4785-be2e-%012d", "resourceVersion": "%d",
		"creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["storage.dpu.nvidia.com/dpuvolume"], "labels": {"owner": "uid-%05d"}},
	"spec": {"dpuStoragePolicyName": "gold", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Block", "parameters": {"tier": "gold"}},
	"status": {"phase": "Bound", "conditions": [
		{"type": "Ready", "status": "True", "reason": "Success", "message": "", "lastTransitionTime": "2026-01-01T00:00:%02dZ"},
		{"type": "DPUVolumeReconciled", "status": "True", "reason": "Success", "message": "as wanted", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
		"state": {"csiDriverName": "local.csi.moor.dev", "volumeInfo": {"capacity": {"storage": "1Gi"}, "volumeAttributes": {"a": "1", "b": "2"}}}}}`, i, i, i, i, i%60)
	out := &storagev1alpha1.DPUVolume{}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestShared: what is equal in two objects is one in memory; objects stay what they are.
func TestShared(t *testing.T) {
	s := newShared()
	var got [2]*storagev1alpha1.DPUVolume
	for i := range got {
		want := aVolume(t, i)
		o, err := s.after(nil)(aVolume(t, i))
		if err != nil {
			t.Fatal(err)
		}
		got[i] = o.(*storagev1alpha1.DPUVolume)
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	one, two := got[0], got[1]
	for what, of := range map[string][2]string{
		"namespace":              {one.Namespace, two.Namespace},
		"kind":                   {one.Kind, two.Kind},
		"condition":              {one.Status.Conditions[1].Type, two.Status.Conditions[1].Type},
		"type of its own":        {string(one.Status.Phase), string(two.Status.Phase)},
		"behind a pointer":       {one.Status.State.CSIDriverName, two.Status.State.CSIDriverName},
		"pointer to a string":    {string(*one.Spec.VolumeMode), string(*two.Spec.VolumeMode)},
		"list of another type":   {string(one.Spec.AccessModes[0]), string(two.Spec.AccessModes[0])},
		"key of a differing map": {keyOf(one.Labels), keyOf(two.Labels)},
	} {
		if !identical(of[0], of[1]) {
			t.Errorf("%s: %q is there twice", what, of[0])
		}
	}
	for what, of := range map[string][2]any{
		"finalizers": {one.Finalizers, two.Finalizers},
		"parameters": {one.Spec.Parameters, two.Spec.Parameters},
		"attributes": {one.Status.State.VolumeInfo.VolumeAttributes, two.Status.State.VolumeInfo.VolumeAttributes},
		"requests":   {one.Spec.Resources.Requests, two.Spec.Resources.Requests},
		"capacity":   {one.Spec.Resources.Requests, two.Status.State.VolumeInfo.Capacity},
	} {
		if reflect.ValueOf(of[0]).UnsafePointer() != reflect.ValueOf(of[1]).UnsafePointer() {
			t.Errorf("%s: %v is there twice", what, of[0])
		}
	}
	if unsafe.SliceData(one.Status.Conditions) == unsafe.SliceData(two.Status.Conditions) {
		t.Error("two objects have one list of conditions")
	}
}

func keyOf(m map[string]string) string {
	for key := range m {
		return key
	}
	return ""
}

// TestSharedAgain: to an object that is shared already nothing is written: informers have
// objects transformed that they hold.
func TestSharedAgain(t *testing.T) {
	s := newShared()
	o := aVolume(t, 1)
	s.share(reflect.ValueOf(o))
	labels, requests := o.Labels, o.Spec.Resources.Requests
	done := make(chan struct{})
	go func() { // the race detector sees a write
		defer close(done)
		_ = o.DeepCopy()
	}()
	s.share(reflect.ValueOf(o))
	<-done
	if reflect.ValueOf(labels).UnsafePointer() != reflect.ValueOf(o.Labels).UnsafePointer() ||
		reflect.ValueOf(requests).UnsafePointer() != reflect.ValueOf(o.Spec.Resources.Requests).UnsafePointer() {
		t.Error("its maps are others now")
	}
}

// TestSharedHolds: what many objects hold with what is equal shared.
func TestSharedHolds(t *testing.T) {
	const most = 1650
	s := newShared()
	got := held(t, s.after(nil))
	if got > most {
		t.Errorf("a volume holds %d bytes, want no more than %d", got, most)
	}
	without := held(t, cache.TransformStripManagedFields())
	if without <= most {
		t.Errorf("a volume of which nothing is shared holds %d bytes: the test shows nothing", without)
	}
	t.Logf("a volume holds %d bytes, and %d if nothing is shared", got, without)
}

// held is how many bytes one of many objects holds, behind a transform.
func held(t *testing.T, transform toolscache.TransformFunc) uint64 {
	t.Helper()
	const objects = 2000
	all := make([]any, objects)
	before := live()
	for i := range all {
		o, err := transform(aVolume(t, i))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = o
	}
	out := (live() - before) / objects
	runtime.KeepAlive(all)
	return out
}

func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestSharing: each transform of a cache is followed by sharing, and stays in force.
func TestSharing(t *testing.T) {
	renamed := func(name string) toolscache.TransformFunc {
		return func(o any) (any, error) { o.(client.Object).SetGenerateName(name); return o, nil }
	}
	all := map[string]cache.Config{"ns": {Transform: renamed("namespace")}, "other": {}}
	given := cache.Options{
		DefaultTransform:  renamed("default"),
		DefaultNamespaces: all,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Transform: renamed("kind")},
			&corev1.Node{}: {Namespaces: all},
		},
	}
	got := sharing(given)
	found := map[string]toolscache.TransformFunc{"default": got.DefaultTransform, "namespace": got.DefaultNamespaces["ns"].Transform}
	for kind, of := range got.ByObject {
		switch kind.(type) {
		case *corev1.Pod:
			found["kind"] = of.Transform
		default:
			if of.Transform != nil || of.Namespaces["other"].Transform != nil {
				t.Error("a kind without a transform of its own has one now, and not the default")
			}
		}
	}
	var first *storagev1alpha1.DPUVolume
	for name, transform := range found {
		o, err := transform(aVolume(t, 1))
		if err != nil {
			t.Fatal(err)
		}
		v := o.(*storagev1alpha1.DPUVolume)
		if v.GenerateName != name {
			t.Errorf("%s: the transform is %q", name, v.GenerateName)
		}
		if first == nil {
			first = v
		}
		if !identical(first.Namespace, v.Namespace) {
			t.Errorf("%s: shares nothing with the others", name)
		}
	}
	if given.DefaultNamespaces["ns"].Transform == nil || len(given.ByObject) != 2 {
		t.Error("the options given were changed")
	}
	gone := toolscache.DeletedFinalStateUnknown{Key: "ns/name"}
	if o, err := newShared().after(nil)(gone); err != nil || o != gone {
		t.Errorf("what is no object became %v, %v", o, err)
	}
}

func BenchmarkShared(b *testing.B) {
	s := newShared()
	o := aVolume(b, 1)
	for b.Loop() {
		s.share(reflect.ValueOf(o))
	}
}

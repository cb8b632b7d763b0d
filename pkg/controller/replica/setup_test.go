package replica

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// dpuOf is the DPUStorageNode of a node that may have a replica.
func dpuOf(change func(*moorv1alpha1.DPUStorageNode)) *moorv1alpha1.DPUStorageNode {
	d := kubetest.DPUStorageNode("a")
	d.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true, Functions: []moorv1alpha1.FunctionCount{{Type: "vf", Total: 16, Free: 3}}}
	change(d)
	return d
}

// TestBetter: what a volume that misses a replica waits for is that a node becomes good
// enough for one.
func TestBetter(t *testing.T) {
	type dpu = *moorv1alpha1.DPUStorageNode
	same := func(dpu) {}
	down := func(d dpu) { d.Status.DPU.SNAPReady = false }
	drain := func(d dpu) { d.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "new BFB"} }
	lost := func(volumes ...string) func(dpu) {
		return func(d dpu) { d.Status.DPU.LostPaths = lostPaths(volumes...) }
	}
	for name, tc := range map[string]struct {
		was, is func(dpu)
		want    bool
	}{
		"answers again":       {down, same, true},
		"answers no more":     {same, down, false},
		"drained no more":     {drain, same, true},
		"drained":             {same, drain, false},
		"never reported":      {func(d dpu) { d.Status.DPU = nil }, same, true},
		"more are free":       {same, func(d dpu) { d.Status.DPU.Functions[0].Free++ }, true},
		"fewer are free":      {same, func(d dpu) { d.Status.DPU.Functions[0].Free-- }, false},
		"more, and it is bad": {same, func(d dpu) { down(d); d.Status.DPU.Functions[0].Free++ }, false},
		"counted no more":     {same, func(d dpu) { d.Status.DPU.Functions = nil }, true},
		"counted now":         {func(d dpu) { d.Status.DPU.Functions = nil }, same, false},
		"a path is back":      {lost("x", "y"), lost("y"), true},
		"not all are lost":    {func(d dpu) { lost("x")(d); d.Status.DPU.AllPathsLost = true }, lost("x"), true},
		"another is lost":     {lost("x"), lost("x", "y"), false},
		"back, and it is bad": {lost("x"), down, false},
		"another DPU":         {same, func(d dpu) { d.Spec.DPUName = "dpu-z" }, true},
		"elsewhere":           {same, func(d dpu) { d.Status.Topology = map[string]string{"rack": "r"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dpuBetter(event.UpdateEvent{ObjectOld: dpuOf(tc.was), ObjectNew: dpuOf(tc.is)}); got != tc.want {
				t.Errorf("better: %v, want %v", got, tc.want)
			}
		})
	}
	well := kubetest.Node("a", nil)
	well.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	gone, cordoned, other := well.DeepCopy(), well.DeepCopy(), well.DeepCopy()
	gone.Status.Conditions[0].Status = corev1.ConditionUnknown
	cordoned.Spec.Unschedulable = true
	other.Labels = map[string]string{"l": "v"}
	for name, tc := range map[string]struct {
		was, is *corev1.Node
		want    bool
	}{
		"ready": {gone, well, true}, "not ready": {well, gone, false}, "uncordoned": {cordoned, well, true},
		"cordoned": {well, cordoned, false}, "relabelled": {well, other, true}, "as it was": {well, well, false},
	} {
		if got := nodeBetter(event.UpdateEvent{ObjectOld: tc.was, ObjectNew: tc.is}); got != tc.want {
			t.Errorf("%s: better: %v, want %v", name, got, tc.want)
		}
	}
}

// TestDPUChanged: beats wake nothing, and a lost path only when it comes or goes.
func TestDPUChanged(t *testing.T) {
	type dpu = *moorv1alpha1.DPUStorageNode
	of := func(volumes ...string) func(dpu) {
		return func(d dpu) { d.Status.DPU.LostPaths = lostPaths(volumes...) }
	}
	for name, tc := range map[string]struct {
		was, is func(dpu)
		want    bool
	}{
		"nothing":           {of(), of(), false},
		"a beat":            {of("x"), func(d dpu) { of("x")(d); d.Status.DPU.Sequence++ }, false},
		"SNAP":              {of(), func(d dpu) { d.Status.DPU.SNAPReady = false }, true},
		"a path is lost":    {of(), of("x"), true},
		"another is lost":   {of("x"), of("x", "y"), true},
		"one is back":       {of("x", "y"), of("y"), true},
		"all are back":      {of("x", "y"), of(), true},
		"the last is lost":  {of("x"), func(d dpu) { of("x")(d); d.Status.DPU.AllPathsLost = true }, true},
		"in another order":  {of("x", "y"), of("y", "x"), false},
		"told differently":  {of("x"), func(d dpu) { of("x")(d); d.Status.DPU.LostPaths[0].Message = "timeout" }, false},
		"since another day": {of("x"), func(d dpu) { of("x")(d); d.Status.DPU.LostPaths[0].Since = metav1.Unix(1, 0) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dpuChanged(event.UpdateEvent{ObjectOld: dpuOf(tc.was), ObjectNew: dpuOf(tc.is)}); got != tc.want {
				t.Errorf("changed: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestWakesOfANode: a node wakes what is attached to it, and behind that what misses
// replicas, if it has become better; what is there at the start wakes nothing.
func TestWakesOfANode(t *testing.T) {
	w := newFixture(t, 2, 1)
	w.attach("vol", "a", primary)
	for i := range 3 {
		name := fmt.Sprintf("short-%d", i)
		w.volume(name, 2, 1)
		v := &storagev1alpha1.DPUVolume{}
		w.Get(v, name)
		v.Status.Replicas = &storagev1alpha1.ReplicaState{Wanted: 1, Missing: 1}
		w.must(w.Direct.Status().Update(t.Context(), v))
	}
	for name, tc := range map[string]struct {
		better bool
		want   []string
	}{
		"better": {true, []string{"vol", "short-0", "short-1", "short-2"}},
		"worse":  {false, []string{"vol"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := priorityqueue.New[reconcile.Request](t.Name())
			defer q.ShutDown()
			on := w.r.onNode(func(event.UpdateEvent) bool { return tc.better })
			on.Update(t.Context(), event.UpdateEvent{ObjectOld: dpuOf(func(*moorv1alpha1.DPUStorageNode) {}), ObjectNew: dpuOf(func(d *moorv1alpha1.DPUStorageNode) { d.ResourceVersion = "2" })}, q)
			var got []string
			for q.Len() > 0 {
				one, _ := q.Get()
				got = append(got, one.Name)
				q.Done(one)
			}
			if len(got) > 1 {
				slices.Sort(got[1:])
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("woken (-want +got):\n%s", d)
			}
		})
	}
	if isNew(event.CreateEvent{Object: kubetest.Node("a", nil), IsInInitialList: true}) || !isNew(event.CreateEvent{Object: kubetest.Node("a", nil)}) {
		t.Error("the first list wakes, or what is made later does not")
	}
}

// listed counts the objects that lists return, by kind, and those that are copied.
type listed struct {
	objects map[string]int
	copied  map[string]int
}

func (w *fixture) counted() *listed {
	out := &listed{objects: map[string]int{}, copied: map[string]int{}}
	shared := func(is *bool) bool { return is != nil && *is }
	w.r.Host.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			kind := reflect.TypeOf(l).Elem().Name()
			out.objects[kind] += meta.LenList(l)
			if !shared((&client.ListOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy) {
				out.copied[kind] += meta.LenList(l)
			}
			return err
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if !shared((&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy) {
				out.copied[reflect.TypeOf(o).Elem().Name()]++
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	return out
}

// TestAVolumeThatMissesAReplica looks at each node once, without copies, and of what is
// attached elsewhere only at what has no function yet; of pods only at those that may
// concern its own.
func TestAVolumeThatMissesAReplica(t *testing.T) {
	w := newFixture(t, 2, 1)
	averseTo := func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "db"}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
		}}}}
	}
	w.attach("vol", "a", primary)
	w.pod("p", func(p *corev1.Pod) { averseTo(p); p.Spec.NodeName = "a" }, "vol")
	w.free(0, "b", "c", "d")
	for i := range 20 {
		volume := fmt.Sprintf("other-%d", i)
		w.volume(volume, 1, 0)
		w.attach(volume, "b", primary)
		w.pod("far-"+volume, func(p *corev1.Pod) { averseTo(p); p.Namespace, p.Spec.NodeName = "elsewhere", "b" })
	}
	w.volume("ordered", 1, 0)
	w.ordered("ordered", "c")
	w.pass("vol")
	if got := w.state("vol").Missing; got != 1 {
		t.Fatalf("%d replicas are missing, want 1", got)
	}
	got := w.counted()
	w.pass("vol")
	const passes = 3
	want := map[string]int{
		"DPUVolumeAttachmentList": passes * 2, // its own, and that without a function
		"DPUStorageNodeList":      passes * 4,
		"PodList":                 passes * 3, // its own: on the claim, in the namespace, and with demands on that
		"PersistentVolumeList":    passes * 3,
	}
	if d := cmp.Diff(want, got.objects); d != "" {
		t.Errorf("listed in %d passes (-want +got):\n%s", passes, d)
	}
	if n := got.copied["Node"] + got.copied["DPUStorageNode"] + got.copied["DPUStorageNodeList"]; n != 0 {
		t.Errorf("nodes were copied: %v", got.copied)
	}
	before := got.objects["PodList"]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "new"}}
	averseTo(pod)
	w.r.ofPod(t.Context(), pod)
	if n := got.objects["PodList"] - before; n != 1 {
		t.Errorf("a pod was held against %d others, want the one in its namespace", n)
	}
}

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func open(t *testing.T) (*kubetest.Clusters, func()) {
	w := kubetest.New(t)
	r := &Reconciler{Clusters: hostclustertest.Clusters(w)}
	return w, func() {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
}

func dpu(sequence int64) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "dpu-a"}, Status: moorv1alpha1.DPUStorageNodeStatus{
		DPU: &moorv1alpha1.DPUState{
			Heartbeat: moorv1alpha1.Heartbeat{Sequence: sequence, Time: metav1.Unix(sequence*10, 0)}, SNAPReady: true,
			Functions: []moorv1alpha1.FunctionCount{{Type: "vf", Total: 4, Free: 3}},
		},
	}}
}

func TestCopiesTheDPUsHalf(t *testing.T) {
	w, pass := open(t)
	host := kubetest.DPUStorageNode("a")
	host.Status.Host = &moorv1alpha1.HostState{MaxVolumes: 9}
	w.Host.Add(host)
	pass()
	if got, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("a")); got.Status.DPU != nil {
		t.Errorf("there is no DPU yet, but %+v", got.Status.DPU)
	}
	w.DPU.Add(dpu(1))
	pass()
	for _, sequence := range []int64{1, 13} {
		kubetest.Change(w.DPU, dpu(0), func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = dpu(sequence).Status.DPU })
		pass()
		got, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("a"))
		if diff := cmp.Diff(dpu(sequence).Status.DPU, got.Status.DPU); diff != "" {
			t.Errorf("the DPU's half (-want +got):\n%s", diff)
		}
		if got.Status.Host == nil || got.Status.Host.MaxVolumes != 9 {
			t.Errorf("the host's half is %+v", got.Status.Host)
		}
		before := w.Writes()
		pass()
		if n := w.Writes() - before; n != 0 {
			t.Errorf("a pass over what has not changed wrote %d times", n)
		}
	}
}

// TestMereBeats are not copied each, but often enough; a change of the state is
// copied with the beat that tells of it.
func TestMereBeats(t *testing.T) {
	w, pass := open(t)
	w.Host.Add(kubetest.DPUStorageNode("a"))
	w.DPU.Add(dpu(1))
	pass()
	here := func() *moorv1alpha1.DPUState {
		n, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("a"))
		return n.Status.DPU
	}
	beat := func(change func(*moorv1alpha1.DPUState)) {
		kubetest.Change(w.DPU, dpu(0), func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Sequence++
			n.Status.DPU.Time = metav1.Unix(n.Status.DPU.Sequence*10, 0)
			if change != nil {
				change(n.Status.DPU)
			}
		})
		pass()
	}
	before := w.Writes()
	for range 60 {
		beat(nil)
	}
	if n := w.Writes() - before; n != 12 {
		t.Errorf("60 beats were copied %d times", n)
	}
	if got := here(); got.Sequence != 61 {
		t.Errorf("sequence %d", got.Sequence)
	}
	beat(func(s *moorv1alpha1.DPUState) { s.Time = metav1.Unix(700, 0) })
	if got := here(); got.Sequence != 62 {
		t.Errorf("of a DPU that writes its object each minute, sequence %d", got.Sequence)
	}
	beat(func(s *moorv1alpha1.DPUState) { s.Time = metav1.Unix(600, 0) })
	if got := here(); got.Sequence != 63 {
		t.Errorf("of a DPU whose clock was set back, sequence %d", got.Sequence)
	}
	beat(func(s *moorv1alpha1.DPUState) { s.Time = metav1.Unix(620, 0) })
	if got := here(); got.Sequence != 63 {
		t.Errorf("a mere beat was copied: sequence %d", got.Sequence)
	}
	beat(func(s *moorv1alpha1.DPUState) { s.Host = &moorv1alpha1.HostObservation{Evidence: "no link"} })
	if got := here(); got.Sequence != 65 || got.Host == nil {
		t.Errorf("a change was not copied: %+v", got)
	}
	beat(func(s *moorv1alpha1.DPUState) { s.Sequence = 1 })
	if got := here(); got.Sequence != 1 {
		t.Errorf("a row that begins anew was not copied: %d", got.Sequence)
	}
}

// TestKeepsTheLastHalf: a DPU that is not seen does not wipe what it said; its
// beat simply stops.
func TestKeepsTheLastHalf(t *testing.T) {
	w, pass := open(t)
	w.Host.Add(kubetest.DPUStorageNode("a"))
	w.DPU.Add(dpu(5))
	pass()
	w.DPU.Remove(dpu(5))
	pass()
	if got, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("a")); got.Status.DPU == nil || got.Status.DPU.Sequence != 5 {
		t.Errorf("got %+v", got.Status.DPU)
	}
}

func TestWithoutDPUOrNode(t *testing.T) {
	w, pass := open(t)
	pass()
	lone := kubetest.DPUStorageNode("a")
	lone.Spec.DPUName = ""
	w.Host.Add(lone)
	pass()
	if w.Writes() != 0 {
		t.Errorf("wrote %d times", w.Writes())
	}
}

// TestWhatOfADPUWakes: no beat, but what it tells, and the beat that is due.
func TestWhatOfADPUWakes(t *testing.T) {
	w := kubetest.New(t)
	here := kubetest.DPUStorageNode("a")
	here.Status.DPU = dpu(1).Status.DPU
	w.Host.Add(here, kubetest.DPUStorageNode("b"))
	r := &Reconciler{Clusters: hostclustertest.Clusters(w)}
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.DPUStorageNode)
		want   int
	}{
		"the same": {func(*moorv1alpha1.DPUStorageNode) {}, 0},
		"a beat":   {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence++ }, 0},
		"the fifth": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Sequence, n.Status.DPU.Time = 6, metav1.Unix(60, 0)
		}, 1},
		"it began anew":  {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence = 0 }, 1},
		"SNAP is down":   {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false }, 1},
		"a function":     {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Functions[0].Free-- }, 1},
		"no state":       {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = nil }, 1},
		"another's DPU":  {func(n *moorv1alpha1.DPUStorageNode) { n.Name, n.Status.DPU.SNAPReady = "dpu-c", false }, 0},
		"of a new host":  {func(n *moorv1alpha1.DPUStorageNode) { n.Name = "dpu-b" }, 1},
		"and nothing of": {func(n *moorv1alpha1.DPUStorageNode) { n.Name, n.Status.DPU = "dpu-b", nil }, 0},
	} {
		there := dpu(1)
		tc.change(there)
		if got := r.told(t.Context(), there); len(got) != tc.want {
			t.Errorf("%s: wakes %v", name, got)
		}
	}
	if got := ofDPU[*corev1.Node](r)(t.Context(), kubetest.Node("dpu-a", nil)); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("the Node of dpu-a wakes %v", got)
	}
}

// TestWhatOfAHostWakes: what is copied to it, and its DPU's name, but no beat.
func TestWhatOfAHostWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.DPUStorageNode)
		want   bool
	}{
		"a beat":         {func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host = &moorv1alpha1.HostState{MaxVolumes: 1} }, false},
		"a condition":    {func(n *moorv1alpha1.DPUStorageNode) { n.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }, false},
		"another DPU":    {func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "new" }, true},
		"its DPU's half": {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = dpu(2).Status.DPU }, true},
		"its place":      {func(n *moorv1alpha1.DPUStorageNode) { n.Status.Topology = map[string]string{"rack": "7"} }, true},
	} {
		old := kubetest.DPUStorageNode("a")
		now := old.DeepCopy()
		tc.change(now)
		if got := concerns(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != tc.want {
			t.Errorf("%s: wakes %v", name, got)
		}
	}
}

// TestPlace: where a DPU is, is told as far as its drivers announce it, also of
// one that has not beaten yet; and again when that changes.
func TestPlace(t *testing.T) {
	w, pass := open(t)
	w.Host.Add(kubetest.DPUStorageNode("a"))
	wants := func(want map[string]string) {
		t.Helper()
		pass()
		got, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("a"))
		if diff := cmp.Diff(want, got.Status.Topology); diff != "" {
			t.Errorf("the place (-want +got):\n%s", diff)
		}
		before := w.Writes()
		pass()
		if n := w.Writes() - before; n != 0 {
			t.Errorf("a pass over what has not changed wrote %d times", n)
		}
	}
	wants(map[string]string{"storage.moor.dev/dpu-name": "dpu-a"})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dpu-a", Labels: map[string]string{
		"rack": "1", "row": "2", "color": "red", corev1.LabelHostname: "dpu-a",
	}}}
	drivers := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "dpu-a"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "x", NodeID: "dpu-a", TopologyKeys: []string{"rack", "unlabelled"}}, {Name: "y", NodeID: "dpu-a", TopologyKeys: []string{"row", corev1.LabelHostname}}, {Name: "z", NodeID: "dpu-a"},
	}}}
	w.DPU.Add(node)
	if err := w.DPU.Direct.Create(t.Context(), drivers); err != nil {
		t.Fatal(err)
	}
	wants(map[string]string{"storage.moor.dev/dpu-name": "dpu-a", "rack": "1", "row": "2"})
	kubetest.Change(w.DPU, node, func(n *corev1.Node) { n.Labels["rack"] = "7" })
	wants(map[string]string{"storage.moor.dev/dpu-name": "dpu-a", "rack": "7", "row": "2"})
	if err := w.DPU.Direct.Delete(t.Context(), drivers); err != nil {
		t.Fatal(err)
	}
	wants(map[string]string{"storage.moor.dev/dpu-name": "dpu-a"})
}

// TestPlaceOfSeveral: where there are several DPU clusters, that is part of where a DPU is.
func TestPlaceOfSeveral(t *testing.T) {
	w := kubetest.New(t)
	w.Host.Add(kubetest.DPUStorageNode("a"))
	r := &Reconciler{Clusters: hostclustertest.Clusters(w)}
	r.Clusters.DPUCluster = "dpf/east"
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	got, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("a"))
	if d := cmp.Diff(map[string]string{"storage.moor.dev/dpu-name": "dpu-a", "storage.moor.dev/dpu-cluster": "dpf.east"}, got.Status.Topology); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

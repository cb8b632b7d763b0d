package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

const (
	primary = storagev1alpha1.RolePrimary
	replica = storagev1alpha1.RoleReplica
)

type (
	kubeNode = corev1.Node
	dpuNode  = moorv1alpha1.DPUStorageNode
)

// TestHowMany: what is wanted against what there is.
func TestHowMany(t *testing.T) {
	for name, tc := range map[string]struct {
		shares, replicas int32
		set              func(*fixture)
		want             int
		state            string
	}{
		"two":                       {3, 2, nil, 2, ""},
		"one":                       {3, 1, nil, 1, ""},
		"none wanted":               {3, 0, nil, 0, ""},
		"more than nodes":           {8, 7, nil, 3, "there are not enough nodes with a DPU"},
		"primary not attached":      {3, 2, func(w *fixture) { w.unattached() }, 0, podsFirst},
		"a user's own replica":      {4, 2, func(w *fixture) { w.attach("vol", "d", replica) }, 2, ""},
		"two primaries":             {3, 2, func(w *fixture) { w.attach("vol", "d", primary) }, 1, ""},
		"share of one that goes":    {3, 2, func(w *fixture) { w.Remove(w.attach("vol", "d", primary)) }, 1, "attachments that are being removed still have their shares of the volume"},
		"claimed, but no pod":       {3, 2, func(w *fixture) { w.pod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "vol") }, 0, "no pod uses the volume now, so it is not known where one could run"},
		"functions kept in reserve": {3, 2, func(w *fixture) { w.free(1, "b", "c", "d") }, 0, "node b: the DPU has 1 vf functions free, and 1 are kept for primaries; node c: the DPU has 1 vf functions free, and 1 are kept for primaries; node d: the DPU has 1 vf functions free, and 1 are kept for primaries"},
		"functions just enough":     {3, 2, func(w *fixture) { w.free(2, "b", "c"); w.free(0, "d") }, 2, ""},
		"functions on order":        {4, 3, func(w *fixture) { w.free(2, "b", "c", "d"); w.ordered("other", "b") }, 2, "node b: the DPU has 1 vf functions free, and 1 are kept for primaries"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, tc.shares, tc.replicas)
			w.attach("vol", "a", primary)
			if tc.set != nil {
				tc.set(w)
			}
			w.pass("vol")
			got := w.replicas("vol")
			if len(got) != tc.want || slices.Contains(got, "a") {
				t.Errorf("replicas on %v, want %d", got, tc.want)
			}
			if name == "functions on order" && slices.Contains(got, "b") {
				t.Errorf("replicas on %v, but the last function of b is on order", got)
			}
			if s := w.state("vol"); s.Message != tc.state || (s.Missing > 0) != (tc.state != "") {
				t.Errorf("state %+v, want %q", s, tc.state)
			}
			if n := w.count("vol"); n > int(tc.shares) {
				t.Errorf("%d attachments, more than %d shares", n, tc.shares)
			}
			if events := w.state("vol"); events.PrimaryGoneSince != nil {
				t.Error("the primary is there, but its going is recorded")
			}
		})
	}
}

// TestYields: while pods are being started with volumes no replica is made, for a while.
func TestYields(t *testing.T) {
	starts := func(p *corev1.Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodPending, "a" }
	for name, tc := range map[string]struct {
		other func(*fixture)
		since time.Duration
		want  int
	}{
		"nothing waits":                   {func(w *fixture) { w.attach("other", "b", primary) }, 0, 2},
		"a pod is being started":          {func(w *fixture) { w.pod("p", starts, "vol") }, 0, 0},
		"a pod is being started for long": {func(w *fixture) { w.pod("p", starts, "vol") }, yieldFor, 2},
		"a pod that has no node":          {func(w *fixture) { w.pod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, "vol") }, 0, 2},
		"a pod waits":                     {func(w *fixture) { w.ordered("other", "b") }, 0, 0},
		"it has waited for long":          {func(w *fixture) { w.ordered("other", "b") }, yieldFor, 2},
		"what waits is a replica":         {func(w *fixture) { w.attach("other", "b", replica) }, 0, 2},
		"what waits is about to be gone":  {func(w *fixture) { w.ordered("other", "b"); w.Remove(w.attachment("other", "b")) }, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 3, 2)
			own := w.attach("vol", "a", primary)
			own.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionDPUAttached, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(w.Clock.Now().Add(-tc.since))}}
			w.must(w.Direct.Status().Update(t.Context(), own))
			tc.other(w)
			again := w.pass("vol")
			if got := w.replicas("vol"); len(got) != tc.want {
				t.Errorf("replicas on %v, want %d", got, tc.want)
			}
			if s, want := w.state("vol"), fmt.Sprintf("%d/2", tc.want); s.Placed != want {
				t.Errorf("placed %s, want %s", s.Placed, want)
			}
			if s := w.state("vol"); tc.want == 0 && (s.Message != podsFirst || s.Missing != 2 || again <= 0 || again > 2*time.Second) {
				t.Errorf("state %+v, looked at again after %s", s, again)
			}
			w.Step(yieldFor)
			w.pass("vol")
			if got := w.replicas("vol"); len(got) != 2 {
				t.Errorf("after %s replicas on %v", yieldFor, got)
			}
		})
	}
}

// TestMadeLikeThePrimary: name, label, function; and the finalizer of snap-host-controller.
func TestMadeLikeThePrimary(t *testing.T) {
	w := newFixture(t, 2, 1)
	p := w.attach("vol", "a", primary)
	p.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
	p.Spec.ReadOnly = true
	w.must(w.Direct.Update(t.Context(), p))
	w.pass("vol")
	node := w.replicas("vol")[0]
	got := w.attachment("vol", node)
	want := p.Spec
	want.DPUNodeName, want.Role, want.Warmth = node, replica, storagev1alpha1.WarmthPreEmulated
	if d := cmp.Diff(want, got.Spec); d != "" || got.Labels[storagev1alpha1.LabelReplicaOf] != "vol" {
		t.Errorf("labels %v, spec (-want +got):\n%s", got.Labels, d)
	}
	if !controllerutil.ContainsFinalizer(got, storagev1alpha1.FinalizerDPUVolumeAttachment) {
		t.Errorf("finalizers %v", got.Finalizers)
	}
}

// TestKeepsAndReplaces: what happens on a node with a replica.
func TestKeepsAndReplaces(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, since time.Duration) func(*fixture, string) {
		return func(w *fixture, n string) {
			w.changeNode(n, func(_ *kubeNode, d *dpuNode) {
				d.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(w.Clock.Now().Add(-since))}}
			})
		}
	}
	for name, tc := range map[string]struct {
		happens func(*fixture, string)
		stays   bool
		again   bool
	}{
		"nothing":               {func(*fixture, string) {}, true, false},
		"no function free":      {func(w *fixture, n string) { w.free(0, n) }, true, false},
		"DPU just died":         {condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse, time.Second), true, true},
		"DPU dead for long":     {condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse, time.Hour), false, false},
		"host dead for long":    {condition(moorv1alpha1.ConditionHostAlive, metav1.ConditionFalse, time.Hour), false, false},
		"DPU silent, not known": {condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionUnknown, time.Hour), true, false},
		"SNAP restarts": {func(w *fixture, n string) {
			w.changeNode(n, func(_ *kubeNode, d *dpuNode) { d.Status.DPU.SNAPReady = false })
		}, true, false},
		"node deleted": {func(w *fixture, n string) {
			w.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}, false, false},
		"DPUStorageNode deleted": {func(w *fixture, n string) {
			w.Remove(&moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}, false, false},
		"DPU taken out":       {func(w *fixture, n string) { w.changeNode(n, func(_ *kubeNode, d *dpuNode) { d.Spec.DPUName = "" }) }, false, false},
		"not ready, just now": {func(w *fixture, n string) { w.notReady(n, 0) }, true, true},
		"not ready for long":  {func(w *fixture, n string) { w.notReady(n, time.Hour) }, false, false},
		"cordoned": {func(w *fixture, n string) {
			w.changeNode(n, func(k *kubeNode, _ *dpuNode) { k.Spec.Unschedulable = true })
		}, true, false},
		"its DPU is drained": {func(w *fixture, n string) {
			w.changeNode(n, func(_ *kubeNode, d *dpuNode) { d.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "new BFB"} })
		}, true, false},
		"taint of a node in doubt": {func(w *fixture, n string) { w.taint(n, corev1.TaintNodeNotReady) }, true, false},
		"a taint to stay":          {func(w *fixture, n string) { w.taint(n, "gpu") }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 3, 1)
			w.attach("vol", "a", primary)
			w.pod("p", nil, "vol")
			w.pass("vol")
			was := w.replicas("vol")[0]
			tc.happens(w, was)
			again := w.pass("vol")
			got := w.replicas("vol")
			if len(got) != 1 || (got[0] == was) != tc.stays {
				t.Errorf("replica was on %s and is on %v; stays: want %v", was, got, tc.stays)
			}
			if (again > 0) != tc.again {
				t.Errorf("looks again in %s, want that: %v", again, tc.again)
			}
		})
	}
}

// TestPatienceEnds: a node in trouble loses its replica when its time is over,
// and not before.
func TestPatienceEnds(t *testing.T) {
	w := newFixture(t, 3, 1)
	w.attach("vol", "a", primary)
	w.pass("vol")
	was := w.replicas("vol")[0]
	w.notReady(was, 0)
	left := w.pass("vol")
	if left <= 0 || left > w.r.Patience {
		t.Fatalf("looks again in %s, patience is %s", left, w.r.Patience)
	}
	w.Step(left)
	w.pass("vol")
	if got := w.replicas("vol"); len(got) != 1 || got[0] == was {
		t.Errorf("the replica is on %v still", got)
	}
}

// TestWhereThePodCouldRun: selector, affinity and tolerations count.
func TestWhereThePodCouldRun(t *testing.T) {
	on := func(names ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: names}}}},
		}}}
	}
	for name, tc := range map[string]struct {
		pod   func(*corev1.Pod)
		taint string
		want  []string
	}{
		"anywhere": {nil, "", []string{"b", "c", "d"}},
		"selector": {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "c"} }, "", []string{"c"}},
		"affinity": {func(p *corev1.Pod) { p.Spec.Affinity = on("a", "b", "d") }, "", []string{"b", "d"}},
		"tainted":  {nil, "c", []string{"b", "d"}},
		"tolerated": {func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "x"}, {Key: "gpu", Operator: corev1.TolerationOpExists}, {Key: "y"}}
		}, "c", []string{"b", "c", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 8, 7)
			w.attach("vol", "a", primary)
			w.pod("p", tc.pod, "vol")
			if tc.taint != "" {
				w.taint(tc.taint, "gpu")
			}
			w.pass("vol")
			if d := cmp.Diff(tc.want, w.replicas("vol")); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestVolumesOfOnePodTogether, in either order, with nodes of unlike room.
func TestVolumesOfOnePodTogether(t *testing.T) {
	for _, order := range [][]string{{"vol", "log"}, {"log", "vol"}} {
		w := newFixture(t, 2, 1)
		w.volume("log", 2, 1)
		w.attach("vol", "a", primary)
		w.attach("log", "a", primary)
		w.pod("p", nil, "vol", "log")
		w.free(2, "b", "c") // room for one beside the reserve: not for both
		w.free(3, "d")
		for node, zone := range map[string]string{"a": "1", "b": "2", "c": "3", "d": "1"} { // d is the worst but for its room
			w.changeNode(node, func(k *kubeNode, _ *dpuNode) { k.Labels[corev1.LabelTopologyZone] = zone })
		}
		for _, v := range order {
			w.pass(v)
		}
		if vol, log := w.replicas("vol"), w.replicas("log"); !slices.Equal(vol, []string{"d"}) || !slices.Equal(log, vol) {
			t.Errorf("order %v: vol on %v, log on %v", order, vol, log)
		}
	}
}

// TestWarmthFollows: the volume's warmth is that of its replicas, also when it
// changes; nothing is made anew, and the primary is no replica.
func TestWarmthFollows(t *testing.T) {
	w := newFixture(t, 3, 2)
	w.attach("vol", "a", primary)
	var before []string
	for _, warmth := range []storagev1alpha1.Warmth{storagev1alpha1.WarmthAttached, storagev1alpha1.WarmthPreEmulated} {
		v := &storagev1alpha1.DPUVolume{}
		w.Get(v, "vol")
		v.Spec.Replication.Warmth = warmth
		w.must(w.Direct.Update(t.Context(), v))
		w.pass("vol")
		nodes := w.replicas("vol")
		for _, n := range nodes {
			if got := w.attachment("vol", n); got.Spec.Warmth != warmth || !got.DeletionTimestamp.IsZero() {
				t.Errorf("replica on %s: warmth %q, want %q", n, got.Spec.Warmth, warmth)
			}
		}
		if before != nil && !slices.Equal(before, nodes) || len(nodes) != 2 {
			t.Errorf("replicas on %v, before on %v", nodes, before)
		}
		before = nodes
	}
	if got := w.attachment("vol", "a").Spec.Warmth; got != "" {
		t.Errorf("the primary was given the warmth %s", got)
	}
}

// TestVolumeOfAnotherDriver: of two controllers in one namespace the one that knows the pods places the
// replicas, and the other leaves them alone.
func TestVolumeOfAnotherDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		drivers []string // of the PersistentVolumes of the volume
		want    int
	}{
		"ours":             {[]string{kubetest.Driver}, 1},
		"another's":        {[]string{kubetest.SecondDriver}, 0},
		"ours and theirs":  {[]string{kubetest.SecondDriver, kubetest.Driver}, 1},
		"not known as yet": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 2, 1)
			w.pod("app", nil, "vol")
			w.Remove(kubetest.PV("pv-vol", "vol", "vol"))
			for _, driver := range tc.drivers {
				pv := kubetest.PV("pv-"+driver, "vol", "vol")
				pv.Spec.CSI.Driver, pv.Spec.ClaimRef.Namespace = driver, "apps"
				w.Add(pv)
			}
			w.attach("vol", "a", primary)
			w.pass("vol")
			if got := len(w.replicas("vol")); got != tc.want {
				t.Errorf("%d replicas, want %d", got, tc.want)
			}
		})
	}
}

// TestOldCache: a cache that does not show what was made does not lead to more replicas.
func TestOldCache(t *testing.T) {
	w := newFixture(t, 4, 1)
	w.attach("vol", "a", primary)
	var before storagev1alpha1.DPUVolumeAttachmentList
	w.must(w.Direct.List(t.Context(), &before))
	w.pass("vol")
	first := w.replicas("vol")
	w.free(0, first[0]) // so that another node looks better now
	w.CacheLists(&before)
	w.pass("vol")
	if got := w.replicas("vol"); !slices.Equal(got, first) {
		t.Errorf("replicas on %v, want %v", got, first)
	}
}

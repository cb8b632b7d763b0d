package attachment

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

// byNode is open where nodes ask by themselves; the hosts have Nodes.
func byNode(t *testing.T, modes ...corev1.PersistentVolumeAccessMode) (*kubetest.Clusters, *Reconciler) {
	if modes == nil {
		modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	w := kubetest.New(t)
	bound := kubetest.DPUVolume("vol", modes...)
	bound.Status.Phase = storagev1alpha1.DPUVolumeBound
	w.Host.Add(kubetest.DPUStorageNode("a"), kubetest.DPUStorageNode("b"), bound, host("a"), host("b"))
	w.DPU.Add(kubetest.MirrorOfFirst("vol"))
	return w, &Reconciler{
		Clusters: hostclustertest.Clusters(w), Users: usersOf(w), NodesAsk: true,
		Clock: clocktesting.NewFakePassiveClock(time.Now()),
	}
}

func host(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func asked(node string) *storagev1alpha1.DPUVolumeAttachment {
	a := user(node)
	a.Spec.Requester, a.CreationTimestamp = storagev1alpha1.RequesterNode, metav1.Now()
	return a
}

func exists(w *kubetest.Clusters, a *storagev1alpha1.DPUVolumeAttachment) bool {
	got, found := kubetest.Read(w.Host, a)
	return found && got.DeletionTimestamp.IsZero()
}

// begun reports whether anything was made or granted in the DPU cluster.
func begun(w *kubetest.Clusters) bool {
	_, mirrored := kubetest.Read(w.DPU, mirror("a"))
	claim := claimOf(w)
	return mirrored || claim.Status != nil && claim.Status.Phase != moorv1alpha1.ClaimFree
}

// TestWhatANodeMayHave: only what a pod that is bound to it uses, for volumes
// of one writer and of many.
func TestWhatANodeMayHave(t *testing.T) {
	for name, tc := range map[string]struct {
		pv      func(*corev1.PersistentVolume)
		pod     func(*corev1.Pod)
		allowed bool
	}{
		"its pod's":             {allowed: true},
		"a terminating pod's":   {pod: func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp, p.Finalizers = &now, []string{"x/y"} }, allowed: true},
		"an ephemeral volume":   {pod: ephemeral, pv: func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = "pod-scratch" }, allowed: true},
		"another node's":        {pod: func(p *corev1.Pod) { p.Spec.NodeName = "b" }},
		"a pod without a node":  {pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		"a pod that has ended":  {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"a pod that has failed": {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"another claim":         {pod: func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }},
		"another namespace":     {pod: func(p *corev1.Pod) { p.Namespace = "other" }},
		"no volume":             {pod: func(p *corev1.Pod) { p.Spec.Volumes = nil }},
		"a claim not yet bound": {pv: func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeAvailable }},
		"a released volume":     {pv: func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased }},
		"no claim":              {pv: func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }},
		"another volume":        {pv: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" }},
		"another driver":        {pv: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }},
	} {
		for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				w, r := byNode(t, mode)
				pv, pod := kubetest.PV("pv", "data", "vol"), kubetest.Pod("pod", "a", "data")
				if tc.pv != nil {
					tc.pv(pv)
				}
				if tc.pod != nil {
					tc.pod(pod)
				}
				w.Host.Add(pv, asked("a"), pod)
				if pod.DeletionTimestamp != nil {
					w.Host.Remove(pod)
				}
				w.MustReconcile(r, "a-vol")
				if got := begun(w); got != tc.allowed {
					t.Errorf("begun %v, want %v", got, tc.allowed)
				}
				got, _ := kubetest.Read(w.Host, asked("a"))
				const words = "no pod that is bound to it uses"
				if waits := strings.Contains(got.Status.Message, words); waits == tc.allowed {
					t.Errorf("message %q", got.Status.Message)
				}
				if !tc.allowed && !strings.Contains(kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionReady)[0], words) {
					t.Errorf("conditions %v", got.Status.Conditions)
				}
			})
		}
	}
}

func ephemeral(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

// TestOldPod: a pod that the cache still shows gives no right.
func TestOldPod(t *testing.T) {
	w, r := byNode(t)
	old, _ := byNode(t)
	old.Host.Add(kubetest.PV("pv", "data", "vol"), kubetest.Pod("pod", "a", "data"))
	r.Users.Host.Client = old.Host.Client // the cache
	ended := kubetest.Pod("pod", "a", "data")
	ended.Status.Phase = corev1.PodFailed
	w.Host.Add(kubetest.PV("pv", "data", "vol"), asked("a"), ended)
	w.MustReconcile(r, "a-vol")
	if begun(w) {
		t.Error("granted for a pod that has ended")
	}
}

// TestPromotionNeedsAPod: the mirror of a replica stays one, and no right is
// granted, until a pod of that node uses the volume.
func TestPromotionNeedsAPod(t *testing.T) {
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany} {
		w, r := byNode(t, mode)
		w.Host.Add(kubetest.PV("pv", "data", "vol"), replicaOn("a"))
		w.MustReconcile(r, "a-vol")
		kubetest.Change(w.DPU, mirror("a"), prepared)
		kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) {
			a.Spec.Role, a.Spec.Requester = storagev1alpha1.RolePrimary, storagev1alpha1.RequesterNode
			a.CreationTimestamp = metav1.Now()
		})
		w.MustReconcile(r, "a-vol")
		if m, _ := kubetest.Read(w.DPU, mirror("a")); m.Spec.Role != storagev1alpha1.RoleReplica || m.Spec.Epoch != 0 {
			t.Errorf("%s: promoted without a pod: %+v", mode, m.Spec)
		}
		if got, _ := kubetest.Read(w.Host, user("a")); got.Status.Warmth != storagev1alpha1.WarmthPreEmulated {
			t.Errorf("%s: while it waits, it is %+v", mode, got.Status)
		}
		w.Host.Add(kubetest.Pod("pod", "a", "data"))
		w.MustReconcile(r, "a-vol")
		if m, _ := kubetest.Read(w.DPU, mirror("a")); m.Spec.Role != storagev1alpha1.RolePrimary {
			t.Errorf("%s: not promoted: %+v", mode, m.Spec)
		}
	}
}

// TestOnceGranted: what was begun for a pod is not undone by its end; the
// node gives it back.
func TestOnceGranted(t *testing.T) {
	w, r := byNode(t)
	w.Host.Add(kubetest.PV("pv", "data", "vol"), asked("a"), kubetest.Pod("pod", "a", "data"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	w.Host.Remove(kubetest.Pod("pod", "a", "data"))
	r.Clock.(*clocktesting.FakePassiveClock).SetTime(time.Now().Add(time.Hour))
	w.MustReconcile(r, "a-vol")
	got, _ := kubetest.Read(w.Host, asked("a"))
	if !exists(w, asked("a")) || got.Status.DPUAttached == nil || !*got.Status.DPUAttached {
		t.Errorf("taken away: %+v", got.Status)
	}
}

// TestForsaken: what its node will never give back is deleted, and nothing
// else.
func TestForsaken(t *testing.T) {
	taint := func(w *kubetest.Clusters) {
		kubetest.Change(w.Host, host("a"), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		})
	}
	granted := func(w *kubetest.Clusters, r *Reconciler) {
		w.Host.Add(kubetest.Pod("pod", "a", "data"))
		w.MustReconcile(r, "a-vol")
	}
	gone := func(w *kubetest.Clusters) { w.Host.Remove(kubetest.Pod("pod", "a", "data")) }
	later := func(r *Reconciler, d time.Duration) {
		r.Clock.(*clocktesting.FakePassiveClock).SetTime(time.Now().Add(d))
	}
	for name, tc := range map[string]struct {
		play    func(*kubetest.Clusters, *Reconciler)
		deleted bool
	}{
		"asked, no pod yet":      {func(_ *kubetest.Clusters, r *Reconciler) { later(r, 4*time.Minute) }, false},
		"asked, no pod for long": {func(_ *kubetest.Clusters, r *Reconciler) { later(r, 6*time.Minute) }, true},
		"asked long ago, pod there": {func(w *kubetest.Clusters, r *Reconciler) {
			w.Host.Add(kubetest.Pod("pod", "a", "data"))
			later(r, time.Hour)
		}, false},
		"granted, pod gone":                 {func(w *kubetest.Clusters, r *Reconciler) { granted(w, r); gone(w); later(r, time.Hour) }, false},
		"granted, out of service, with pod": {func(w *kubetest.Clusters, r *Reconciler) { granted(w, r); taint(w) }, false},
		"granted, out of service, no pod":   {func(w *kubetest.Clusters, r *Reconciler) { granted(w, r); taint(w); gone(w) }, true},
		"granted, Node gone, no pod":        {func(w *kubetest.Clusters, r *Reconciler) { granted(w, r); gone(w); w.Host.Remove(host("a")) }, true},
		"granted, Node gone, with pod":      {func(w *kubetest.Clusters, r *Reconciler) { granted(w, r); w.Host.Remove(host("a")) }, false},
		"old cache hides the Node":          {func(w *kubetest.Clusters, r *Reconciler) { granted(w, r); gone(w); w.CacheHides(host("a")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := byNode(t)
			w.Host.Add(kubetest.PV("pv", "data", "vol"), asked("a"))
			tc.play(w, r)
			w.MustReconcile(r, "a-vol")
			if got := !exists(w, asked("a")); got != tc.deleted {
				t.Errorf("deleted %v, want %v", got, tc.deleted)
			}
		})
	}
}

// TestOthersAreLeftAlone: none of it concerns what a user or the controller
// has asked for.
func TestOthersAreLeftAlone(t *testing.T) {
	w, r := byNode(t)
	old := user("a")
	old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	w.Host.Add(old)
	w.Host.Remove(host("a"))
	w.MustReconcile(r, "a-vol")
	if !begun(w) || !exists(w, user("a")) {
		t.Error("a user's attachment waited for a pod, or was deleted")
	}
}

// TestControllerModeRefusesNodes: where nodes do not ask, one that does is not
// one of ours.
func TestControllerModeRefusesNodes(t *testing.T) {
	w, r := byNode(t)
	r.NodesAsk = false
	w.Host.Add(kubetest.PV("pv", "data", "vol"), asked("a"), kubetest.Pod("pod", "a", "data"))
	w.MustReconcile(r, "a-vol")
	got, _ := kubetest.Read(w.Host, asked("a"))
	if begun(w) || !strings.Contains(got.Status.Message, "--attach-mode=Controller") {
		t.Errorf("begun %v, message %q", begun(w), got.Status.Message)
	}
}

// TestWhatAUserWakes: of its volumes alone, and on its node.
func TestWhatAUserWakes(t *testing.T) {
	w, r := byNode(t)
	other := kubetest.DPUVolumeAttachment("other", "a")
	named := user("a")
	named.Name = "named-by-hand"
	w.Host.Add(kubetest.PV("pv", "data", "vol"), asked("a"), replicaOn("b"), other, named)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"of two attachments":       {kubetest.Pod("pod", "a", "data"), []string{"a-vol", "named-by-hand"}},
		"of a replica":             {kubetest.Pod("pod", "b", "data"), []string{"b-vol"}},
		"where nothing is":         {kubetest.Pod("pod", "c", "data"), nil},
		"another's claim":          {func() *corev1.Pod { p := kubetest.Pod("pod", "a", "data"); p.Namespace = "other"; return p }(), nil},
		"no volume of ours at all": {&corev1.Pod{}, nil},
	} {
		var got []string
		for _, request := range r.ofUser(t.Context(), tc.pod) {
			got = append(got, request.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: wakes %v, want %v", name, got, tc.want)
		}
	}
}

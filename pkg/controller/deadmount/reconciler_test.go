package deadmount

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// fixture is a host cluster with host n1, whose pod "pod" uses volume "vol", for which
// deadMount is Restart.
type fixture struct {
	*kubetest.Clusters
	t *testing.T
	r *Reconciler
}

func newFixture(t *testing.T, change func(p *corev1.Pod, v *storagev1alpha1.DPUVolume)) *fixture {
	c := kubetest.New(t)
	f := &fixture{c, t, &Reconciler{Host: c.Host.Cluster, Namespace: kubetest.HostNamespace, Drivers: []string{kubetest.Driver, kubetest.SecondDriver}, Clock: c.Clock, Recorder: c.Recorder}}
	v := kubetest.DPUVolume("vol", corev1.ReadWriteOnce)
	v.Spec.DeadMount = storagev1alpha1.DeadMountRestart
	p := f.pod("pod")
	if change != nil {
		change(p, v)
	}
	c.Host.Add(v, p, kubetest.PV("pv", "data", "vol"))
	return f
}

func (f *fixture) pod(name string) *corev1.Pod {
	p := kubetest.Pod(name, "n1", "data")
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "s", Controller: ptr.To(true)}}
	return p
}

func (f *fixture) uid(name string) types.UID {
	f.t.Helper()
	p, found := kubetest.Read(f.Host, f.pod(name))
	if !found {
		f.t.Fatalf("there is no pod %s", name)
	}
	return p.UID
}

// says has the host tell of its dead mounts, and a pass made of it.
func (f *fixture) says(dead ...moorv1alpha1.DeadMount) time.Duration {
	f.t.Helper()
	node := kubetest.DPUStorageNode("n1")
	if _, found := kubetest.Read(f.Host, node); !found {
		f.Host.Add(node)
	}
	kubetest.Change(f.Host, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host = &moorv1alpha1.HostState{DeadMounts: dead} })
	return f.pass()
}

func (f *fixture) pass() time.Duration {
	f.t.Helper()
	result, err := f.r.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
	if err != nil {
		f.t.Fatal(err)
	}
	return result.RequeueAfter
}

func dead(pods ...types.UID) moorv1alpha1.DeadMount {
	return moorv1alpha1.DeadMount{Volume: "vol", Pods: pods, DeviceReady: true, Message: "the device is gone"}
}

func (f *fixture) stands(name string) bool {
	p, found := kubetest.Read(f.Host, f.pod(name))
	return found && p.DeletionTimestamp.IsZero()
}

// TestRestart: the pod is deleted, counted, and told of; the one after it not before the
// pause is over, and again and again at most five times.
func TestRestart(t *testing.T) {
	f := newFixture(t, nil)
	for n, pause := range append(append([]time.Duration{}, pauses...), forgetAfter) {
		if n > 0 {
			f.Host.Add(f.pod("pod"))
		}
		d := dead(f.uid("pod"))
		if again := f.says(d); again != pause || f.stands("pod") != (pause > 0) {
			t.Fatalf("time %d: again after %s, the pod stands: %t", n, again, f.stands("pod"))
		}
		if n == len(pauses) {
			break
		}
		f.Step(pause)
		f.pass()
		v, _ := kubetest.Read(f.Host, kubetest.DPUVolume("vol"))
		if f.stands("pod") || v.Status.Restarts == nil || int(v.Status.Restarts.Count) != n+1 {
			t.Fatalf("time %d: the pod stands: %t, counted %+v", n, f.stands("pod"), v.Status.Restarts)
		}
	}
	all := strings.Join(f.Events(), "\n")
	for words, times := range map[string]int{
		"Warning MountDeadReleased deleted, to have volume vol mounted anew":                                   len(pauses),
		"Warning MountDead volume vol: the mount on host n1 is dead: the device is gone: its pods are deleted": 2*len(pauses) - 1,
		"were deleted 5 times within an hour":                                                                  2,
	} {
		if got := strings.Count(all, words); got != times {
			t.Errorf("told %d times, want %d: %s\n%s", got, times, words, all)
		}
	}
}

// TestLeftAlone: nothing is deleted, and what is said is said once.
func TestLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *corev1.Pod, v *storagev1alpha1.DPUVolume)
		dead   func(uid types.UID) moorv1alpha1.DeadMount
		events int
	}{
		"it is to be told alone":       {func(_ *corev1.Pod, v *storagev1alpha1.DPUVolume) { v.Spec.DeadMount = storagev1alpha1.DeadMountTell }, nil, 2},
		"a bare pod":                   {func(p *corev1.Pod, _ *storagev1alpha1.DPUVolume) { p.OwnerReferences = nil }, nil, 2},
		"another pod":                  {nil, func(types.UID) moorv1alpha1.DeadMount { return dead("other") }, 0},
		"a device that is not back":    {nil, func(uid types.UID) moorv1alpha1.DeadMount { d := dead(uid); d.DeviceReady = false; return d }, 2},
		"a pod that is being deleted":  {func(p *corev1.Pod, _ *storagev1alpha1.DPUVolume) { p.Finalizers = []string{"x/y"} }, nil, 0},
		"a pod on another host":        {func(p *corev1.Pod, _ *storagev1alpha1.DPUVolume) { p.Spec.NodeName = "n2" }, nil, 0},
		"a pod without the volume":     {func(p *corev1.Pod, _ *storagev1alpha1.DPUVolume) { p.Spec.Volumes = nil }, nil, 0},
		"a volume that does not exist": {nil, func(uid types.UID) moorv1alpha1.DeadMount { d := dead(uid); d.Volume = "none"; return d }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.change)
			uid := f.uid("pod")
			if p, _ := kubetest.Read(f.Host, f.pod("pod")); p.Finalizers != nil {
				f.Host.Remove(f.pod("pod"))
			}
			d := dead(uid)
			if c.dead != nil {
				d = c.dead(uid)
			}
			before := f.WritesOn(&corev1.Pod{})
			for range 2 {
				if again := f.says(d); again != 0 {
					t.Errorf("again after %s", again)
				}
			}
			if events := f.Events(); len(events) != c.events || f.WritesOn(&corev1.Pod{}) != before {
				t.Errorf("told %q, %d writes", events, f.WritesOn(&corev1.Pod{})-before)
			}
			if v, _ := kubetest.Read(f.Host, kubetest.DPUVolume("vol")); v.Status.Restarts != nil {
				t.Errorf("counted %+v", v.Status.Restarts)
			}
		})
	}
}

// TestDeadHost: what a dead host said last counts no more.
func TestDeadHost(t *testing.T) {
	f := newFixture(t, nil)
	node := kubetest.DPUStorageNode("n1")
	node.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionHostAlive, Status: metav1.ConditionFalse}}
	f.Host.Add(node)
	if again := f.says(dead(f.uid("pod"))); again != 0 || !f.stands("pod") || len(f.Events()) != 0 {
		t.Error("the pod of a dead host was restarted")
	}
}

// TestOldCache: a pod that has the name of the one named, and is another, stays.
func TestOldCache(t *testing.T) {
	f := newFixture(t, nil)
	old, _ := kubetest.Read(f.Host, f.pod("pod"))
	f.Host.Remove(f.pod("pod"))
	f.Host.Add(f.pod("pod"))
	f.CacheShows(old)
	f.CacheLists(&corev1.PodList{Items: []corev1.Pod{*old}})
	if f.says(dead(old.UID)); !f.stands("pod") {
		t.Error("the pod that came after was deleted")
	}
}

// TestCountedFirst: if the count cannot be written, no pod is deleted.
func TestCountedFirst(t *testing.T) {
	f := newFixture(t, nil)
	f.says()
	uid := f.uid("pod")
	kubetest.Change(f.Host, kubetest.DPUStorageNode("n1"), func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Host = &moorv1alpha1.HostState{DeadMounts: []moorv1alpha1.DeadMount{dead(uid)}}
	})
	f.LoseWrite(1, false)
	if _, err := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err == nil || !f.stands("pod") {
		t.Errorf("error %v, the pod stands: %t", err, f.stands("pod"))
	}
	f.pass()
	if f.stands("pod") {
		t.Error("not tried again")
	}
}

// TestBarePodBeside: what is done is done to those that come back, and each is told what is so of it.
func TestBarePodBeside(t *testing.T) {
	f := newFixture(t, nil)
	other := f.pod("bare")
	other.OwnerReferences = nil
	f.Host.Add(other)
	f.says(dead(f.uid("pod"), f.uid("bare")))
	if f.stands("pod") || !f.stands("bare") {
		t.Errorf("pod stands: %t, bare stands: %t", f.stands("pod"), f.stands("bare"))
	}
	all := strings.Join(f.Events(), "\n")
	for words, times := range map[string]int{"its pods are deleted": 2, "no controller would make the pod anew": 1} {
		if got := strings.Count(all, words); got != times {
			t.Errorf("told %d times, want %d: %s\n%s", got, times, words, all)
		}
	}
}

// TestWakes: a host is looked at when its pod comes after its word, and when what is to be done is
// changed.
func TestWakes(t *testing.T) {
	f := newFixture(t, nil)
	f.Host.Add(kubetest.DPUVolumeAttachment("vol", "n1"), kubetest.DPUVolumeAttachment("other", "n2"))
	pod, _ := kubetest.Read(f.Host, f.pod("pod"))
	f.says(dead(pod.UID))
	unbound, stranger := pod.DeepCopy(), pod.DeepCopy()
	unbound.Spec.NodeName, stranger.UID = "", "other"
	for name, c := range map[string]struct {
		got  []ctrl.Request
		want int
	}{
		"the pod":        {f.r.ofPod(t.Context(), pod), 1},
		"one unbound":    {f.r.ofPod(t.Context(), unbound), 0},
		"another":        {f.r.ofPod(t.Context(), stranger), 0},
		"the volume":     {f.r.ofVolume(t.Context(), kubetest.DPUVolume("vol")), 1},
		"another volume": {f.r.ofVolume(t.Context(), kubetest.DPUVolume("third")), 0},
	} {
		if len(c.got) != c.want || c.want > 0 && c.got[0].Name != "n1" {
			t.Errorf("%s: %v", name, c.got)
		}
	}
}

package podresync

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// fixture is a host cluster with a pod that is bound to host-1 and the volume of
// its claim, and a Reconciler whose clock the test moves.
type fixture struct {
	*kubetest.Clusters
	t *testing.T
	r *Reconciler
}

func newFixture(t *testing.T) *fixture {
	c := kubetest.New(t)
	return &fixture{Clusters: c, t: t, r: &Reconciler{
		Host: c.Host.Cluster, NodesAsk: true, Namespace: kubetest.HostNamespace, Drivers: []string{kubetest.Driver, kubetest.SecondDriver}, Clock: c.Clock, Recorder: c.Recorder,
	}}
}

func thePod() *corev1.Pod {
	pod := kubetest.Pod("pod", "host-1", "data")
	pod.Annotations = map[string]string{"its": "own"}
	pod.Status.Phase = corev1.PodPending
	return pod
}

func request(node string) *storagev1alpha1.DPUVolumeAttachment {
	a := kubetest.DPUVolumeAttachment("vol", node)
	a.Spec.Requester = storagev1alpha1.RequesterNode
	return a
}

// at reconciles when so much time has passed, and returns when it wants to be
// called again.
func (m *fixture) at(since time.Duration) time.Duration {
	m.t.Helper()
	m.Clock.SetTime(kubetest.Begin.Add(since))
	result, err := m.r.Reconcile(m.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "pod"}})
	if err != nil {
		m.t.Fatal(err)
	}
	return result.RequeueAfter
}

// woken is the annotation as it is now.
func (m *fixture) woken() string {
	pod, _ := kubetest.Read(m.Host, thePod())
	return pod.Annotations[storagev1alpha1.AnnotationKubeletWoken]
}

func TestWake(t *testing.T) {
	m := newFixture(t)
	m.Host.Add(thePod(), kubetest.PV("pv", "data", "vol"))
	seen := map[string]bool{"": true}
	for _, step := range []struct {
		at, again time.Duration
		woken     int
	}{
		{at: 0, again: 1500 * time.Millisecond},
		{at: time.Second, again: 500 * time.Millisecond},
		{at: 1500 * time.Millisecond, again: 2500 * time.Millisecond, woken: 1},
		{at: 2 * time.Second, again: 2 * time.Second, woken: 1},
		{at: 5 * time.Second, again: 5 * time.Second, woken: 2},
		{at: 10 * time.Second, woken: 3},
		{at: time.Hour, woken: 3},
	} {
		again := m.at(step.at)
		seen[m.woken()] = true
		if woken := len(seen) - 1; woken != step.woken || again != step.again || len(m.Recorder.Events) != woken {
			t.Fatalf("at %s: woken %d times, told %d times, again after %s; want %d, %s", step.at, woken, len(m.Recorder.Events), again, step.woken, step.again)
		}
	}
	if pod, _ := kubetest.Read(m.Host, thePod()); pod.Annotations["its"] != "own" {
		t.Error("the pod lost an annotation of its own")
	}
	const words = "Normal KubeletWoken host-1 has not asked for volume vol for 1.5s: its kubelet is made to look at the pod again"
	if got := <-m.Recorder.Events; got != words {
		t.Errorf("told %q", got)
	}
}

// TestNewPod: one that takes the name of another is waited for anew.
func TestNewPod(t *testing.T) {
	m := newFixture(t)
	m.Host.Add(thePod(), kubetest.PV("pv", "data", "vol"))
	m.at(0)
	m.Host.Remove(thePod())
	m.Host.Add(thePod())
	if again := m.at(1400 * time.Millisecond); again != patience[0] || m.woken() != "" {
		t.Errorf("again after %s, woken %q", again, m.woken())
	}
}

// TestLeaveAlone: if no kubelet sleeps, nothing is written, nor kept.
func TestLeaveAlone(t *testing.T) {
	for name, change := range map[string]func(m *fixture, pod *corev1.Pod, pv *corev1.PersistentVolume){
		"asked for":        func(m *fixture, _ *corev1.Pod, _ *corev1.PersistentVolume) { m.Host.Add(request("host-1")) },
		"not bound yet":    func(_ *fixture, pod *corev1.Pod, _ *corev1.PersistentVolume) { pod.Spec.NodeName = "" },
		"it runs":          func(_ *fixture, pod *corev1.Pod, _ *corev1.PersistentVolume) { pod.Status.Phase = corev1.PodRunning },
		"it has ended":     func(_ *fixture, pod *corev1.Pod, _ *corev1.PersistentVolume) { pod.Status.Phase = corev1.PodFailed },
		"it ends":          func(_ *fixture, pod *corev1.Pod, _ *corev1.PersistentVolume) { pod.Finalizers = []string{"x/y"} },
		"no claim":         func(_ *fixture, pod *corev1.Pod, _ *corev1.PersistentVolume) { pod.Spec.Volumes = nil },
		"no volume yet":    func(_ *fixture, _ *corev1.Pod, pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"not its volume":   func(_ *fixture, _ *corev1.Pod, pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased },
		"another's driver": func(_ *fixture, _ *corev1.Pod, pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" },
		"in another DPU cluster": func(m *fixture, _ *corev1.Pod, _ *corev1.PersistentVolume) {
			m.r.Serves = func(_ context.Context, host string) (bool, error) { return host != "host-1", nil }
		},
		"Kubernetes asks": func(m *fixture, _ *corev1.Pod, _ *corev1.PersistentVolume) { m.r.NodesAsk = false },
	} {
		t.Run(name, func(t *testing.T) {
			m, pod, pv := newFixture(t), thePod(), kubetest.PV("pv", "data", "vol")
			change(m, pod, pv)
			m.Host.Add(pv, pod)
			if pod.Finalizers != nil {
				m.Host.Remove(pod)
			}
			if again := m.at(0) + m.at(time.Minute); again != 0 || m.Writes() != 0 || len(m.r.waits) != 0 {
				t.Errorf("again after %s, %d writes, waits for %v", again, m.Writes(), m.r.waits)
			}
		})
	}
}

// TestNotAsked: neither another host's attachment, nor a replica, nor one that
// is being given back is a kubelet that is awake.
func TestNotAsked(t *testing.T) {
	for name, change := range map[string]func(a *storagev1alpha1.DPUVolumeAttachment){
		"another host":  func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.DPUNodeName = "host-2" },
		"a replica":     func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica },
		"given back":    func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = []string{"x/y"} },
		"another place": func(a *storagev1alpha1.DPUVolumeAttachment) { a.Namespace = "elsewhere" },
	} {
		t.Run(name, func(t *testing.T) {
			m, a := newFixture(t), request("host-1")
			change(a)
			m.Host.Add(thePod(), kubetest.PV("pv", "data", "vol"), a)
			if a.Finalizers != nil {
				m.Host.Remove(a)
			}
			m.at(0)
			if m.at(patience[0]); m.woken() == "" {
				t.Error("not woken")
			}
		})
	}
}

// TestForgotten: what was waited for is not kept once the pod is gone.
func TestForgotten(t *testing.T) {
	m := newFixture(t)
	m.Host.Add(thePod(), kubetest.PV("pv", "data", "vol"))
	m.at(0)
	m.Host.Remove(thePod())
	if m.at(time.Second); len(m.r.waits) != 0 {
		t.Errorf("waits for %v", m.r.waits)
	}
}

// TestPersistentVolume: a volume that becomes bound has the pods looked at that
// their kubelets have.
func TestPersistentVolume(t *testing.T) {
	m := newFixture(t)
	ended := thePod()
	ended.Name, ended.Status.Phase = "ended", corev1.PodSucceeded
	m.Host.Add(thePod(), ended)
	if got := m.r.ofPersistent(t.Context(), kubetest.PV("pv", "data", "vol")); len(got) != 1 || got[0].Name != "pod" {
		t.Errorf("requests %v", got)
	}
	other := kubetest.PV("pv", "data", "vol")
	other.Spec.CSI.Driver = kubetest.SecondDriver
	if got := m.r.ofPersistent(t.Context(), other); len(got) != 1 {
		t.Errorf("requests %v for the second driver's", got)
	}
	other.Spec.CSI.Driver = "other"
	if got := m.r.ofPersistent(t.Context(), other); len(got) != 0 {
		t.Errorf("requests %v for another driver's", got)
	}
}

package podresync

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// said is what a kubelet says of a pod when it was refused its claim.
func said(pod *corev1.Pod) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + ".1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Reason:         "FailedMount",
		Message: "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: " +
			"error processing PVC default/data: failed to fetch PVC from API server",
	}
}

// TestRefused: where Kubernetes asks for the volumes, a kubelet is woken that says
// it has left the pod alone, and no other.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(e *corev1.Event, pv *corev1.PersistentVolume)
		want   bool
	}{
		"it says so":       {func(*corev1.Event, *corev1.PersistentVolume) {}, true},
		"it tries again":   {func(e *corev1.Event, _ *corev1.PersistentVolume) { e.Message = "MountVolume.SetUp failed for volume" }, false},
		"something else":   {func(e *corev1.Event, _ *corev1.PersistentVolume) { e.Reason = "Failed" }, false},
		"of another pod":   {func(e *corev1.Event, _ *corev1.PersistentVolume) { e.InvolvedObject.UID = "other" }, false},
		"another's driver": {func(_ *corev1.Event, pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, pod, pv := newFixture(t), thePod(), kubetest.PV("pv", "data", "vol")
			m.r.NodesAsk = false
			m.Host.Add(pod)
			e := said(pod)
			tc.change(e, pv)
			m.Host.Add(pv, e)
			if again := m.at(0); (again == patience[0]) != tc.want || m.woken() != "" {
				t.Errorf("again after %s, woken %q", again, m.woken())
			}
			m.at(patience[0])
			if woken := m.woken() != ""; woken != tc.want {
				t.Errorf("woken: %v", woken)
			}
			if requests := ofBackOff(t.Context(), e); tc.want && (len(requests) != 1 || requests[0].String() != "default/pod") {
				t.Errorf("looks at %v", requests)
			}
		})
	}
}

// TestRefusedWords are what the user reads.
func TestRefusedWords(t *testing.T) {
	m, pod := newFixture(t), thePod()
	m.r.NodesAsk = false
	m.Host.Add(pod, kubetest.PV("pv", "data", "vol"))
	m.Host.Add(said(pod))
	m.at(0)
	m.at(1600 * time.Millisecond)
	const words = "Normal KubeletWoken host-1 has left the pod alone with volume vol for 1.6s: its kubelet is made to look at the pod again"
	if got := <-m.Recorder.Events; got != words {
		t.Errorf("told %q", got)
	}
}

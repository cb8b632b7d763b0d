package podresync

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// grownClaim is the pod's claim, whose volume has grown to size and waits for
// the node.
func grownClaim(size string) *corev1.PersistentVolumeClaim {
	c := kubetest.PVC("data", "pv")
	c.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	say(c, corev1.PersistentVolumeClaimNodeResizePending)
	return c
}

func say(c *corev1.PersistentVolumeClaim, status corev1.ClaimResourceStatus) {
	c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
}

func runningPod() *corev1.Pod {
	pod := thePod()
	pod.Status.Phase = corev1.PodRunning
	return pod
}

// TestGrown: a kubelet is woken at once, and again while it does nothing, in
// both attach modes. A volume that grows on while its node has not begun is news.
func TestGrown(t *testing.T) {
	m := newFixture(t)
	m.r.NodesAsk = false
	m.Host.Add(runningPod(), kubetest.PV("pv", "data", "vol"), grownClaim("2Gi"))
	seen := map[string]bool{"": true}
	for _, step := range []struct {
		at, again time.Duration
		change    func(*corev1.PersistentVolumeClaim)
		woken     int
	}{
		{at: 0, again: 4 * time.Second, woken: 1},
		{at: time.Second, again: 3 * time.Second, woken: 1},
		{at: 4 * time.Second, again: 6 * time.Second, woken: 2},
		{at: 5 * time.Second, change: func(c *corev1.PersistentVolumeClaim) {
			c.Status.AllocatedResources[corev1.ResourceStorage] = resource.MustParse("3Gi")
		}, again: 4 * time.Second, woken: 3},
		{at: 6 * time.Second, change: func(c *corev1.PersistentVolumeClaim) { say(c, corev1.PersistentVolumeClaimNodeResizeInProgress) }, woken: 3},
		{at: 7 * time.Second, change: func(c *corev1.PersistentVolumeClaim) { say(c, corev1.PersistentVolumeClaimNodeResizePending) }, again: 4 * time.Second, woken: 4},
		{at: 8 * time.Second, change: func(c *corev1.PersistentVolumeClaim) { c.Status.AllocatedResourceStatuses = nil }, woken: 4},
	} {
		if step.change != nil {
			kubetest.Change(m.Host, grownClaim("2Gi"), step.change)
		}
		again := m.at(step.at)
		seen[m.woken()] = true
		if woken := len(seen) - 1; woken != step.woken || again != step.again || len(m.Recorder.Events) != woken {
			t.Fatalf("at %s: woken %d times, told %d times, again after %s; want %d, %s", step.at, woken, len(m.Recorder.Events), again, step.woken, step.again)
		}
	}
	if len(m.r.waits) != 0 {
		t.Errorf("waits for %v", m.r.waits)
	}
	for _, want := range []string{
		"Normal KubeletWoken host-1 has not seen that volume vol has grown to 2Gi: its kubelet is made to look at the pod again",
		"Normal KubeletWoken host-1 has not seen that volume vol has grown to 2Gi for 4s: its kubelet is made to look at the pod again",
	} {
		if got := <-m.Recorder.Events; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
}

// TestNotGrown: where no node has to do anything, nothing is written.
func TestNotGrown(t *testing.T) {
	for name, change := range map[string]func(pod *corev1.Pod, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim){
		"its node does it": func(_ *corev1.Pod, _ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			say(c, corev1.PersistentVolumeClaimNodeResizeInProgress)
		},
		"its storage has not grown": func(_ *corev1.Pod, _ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			say(c, corev1.PersistentVolumeClaimControllerResizeInProgress)
		},
		"it has not grown": func(_ *corev1.Pod, _ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Status = corev1.PersistentVolumeClaimStatus{}
		},
		"another claim has": func(_ *corev1.Pod, _ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Name = "other" },
		"another namespace's has": func(_ *corev1.Pod, _ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Namespace = "other"
		},
		"another driver's": func(_ *corev1.Pod, pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.CSI.Driver = "other"
		},
		"the pod is starting": func(p *corev1.Pod, _ *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			p.Status.Phase = corev1.PodPending
		},
		"the pod has ended": func(p *corev1.Pod, _ *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			p.Status.Phase = corev1.PodSucceeded
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, pod, pv, claim := newFixture(t), runningPod(), kubetest.PV("pv", "data", "vol"), grownClaim("2Gi")
			m.r.NodesAsk = false
			change(pod, pv, claim)
			m.Host.Add(pv, pod, claim)
			if again := m.at(0) + m.at(time.Minute); again != 0 || m.Writes() != 0 || len(m.r.waits) != 0 {
				t.Errorf("again after %s, %d writes, waits for %v", again, m.Writes(), m.r.waits)
			}
		})
	}
}

// TestWaitsForNode: a csi-resizer that says it by a condition alone is understood.
func TestWaitsForNode(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{}
	old.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	for _, want := range []string{"", "5Gi"} {
		if got := waitsForNode(old); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		old.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	}
	if got := waitsForNode(grownClaim("2Gi")); got != "2Gi" {
		t.Errorf("got %q", got)
	}
}

// TestClaim: a claim that grows has every pod looked at that uses it and runs.
func TestClaim(t *testing.T) {
	m := newFixture(t)
	second := runningPod()
	second.Name, second.Spec.NodeName = "second", "host-2"
	m.Host.Add(runningPod(), second)
	if got := m.r.ofClaim(t.Context(), grownClaim("2Gi")); len(got) != 2 {
		t.Errorf("requests %v", got)
	}
}

package attachment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// loses has the DPU of host a tell of lost paths.
func loses(w *kubetest.Clusters, volumes ...string) *moorv1alpha1.DPUStorageNode {
	node := kubetest.DPUStorageNode("a")
	kubetest.Change(w.Host, node, func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU = &moorv1alpha1.DPUState{}
		for _, v := range volumes {
			n.Status.DPU.LostPaths = append(n.Status.DPU.LostPaths, moorv1alpha1.LostPath{Volume: v, Message: "no answer"})
		}
	})
	node, _ = kubetest.Read(w.Host, node)
	return node
}

// TestPathHealthy: the condition comes with the first loss of the volume's path, not with that
// of another, says when it is over, and each turn is told once.
func TestPathHealthy(t *testing.T) {
	w, r := open(t)
	r.Recorder = w.Recorder
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	kubetest.Change(w.Host, kubetest.DPUVolume("vol", corev1.ReadWriteOnce), func(v *storagev1alpha1.DPUVolume) {
		v.Spec.Replication = &storagev1alpha1.Replication{MaxShares: 2, Failover: storagev1alpha1.FailoverFence}
	})
	for n, step := range []struct {
		lost        []string
		want, event string
	}{
		{nil, "", ""},
		{[]string{"other"}, "", ""},
		{[]string{"other", "vol"}, "False DPU dpu-a: no answer", "if that lasts for 15s, the volume moves"},
		{[]string{"vol"}, "False DPU dpu-a: no answer", ""},
		{nil, "True ", "reaches the storage again"},
	} {
		loses(w, step.lost...)
		w.MustReconcile(r, "a-vol")
		a, _ := kubetest.Read(w.Host, user("a"))
		got := ""
		if c := meta.FindStatusCondition(a.Status.Conditions, storagev1alpha1.ConditionPathHealthy); c != nil {
			got = string(c.Status) + " " + c.Message
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", n, got, step.want)
		}
		told := ""
		for _, e := range w.Events() {
			if strings.Contains(e, "Path") {
				told += e
			}
		}
		if (step.event == "") != (told == "") || !strings.Contains(told, step.event) {
			t.Errorf("step %d: told %q, want %q", n, told, step.event)
		}
	}
}

// TestLostPathsWake the attachments of their volumes, and no beat does.
func TestLostPathsWake(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"), kubetest.DPUVolumeAttachment("second", "a"))
	before, lost := loses(w), loses(w, "vol")
	if got := r.ofTold(t.Context(), lost); len(got) != 1 || got[0].Name != "a-vol" {
		t.Errorf("wakes %v", got)
	}
	beat := before.DeepCopy()
	beat.Status.DPU.Sequence++
	if toldChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: beat}) || !toldChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: lost}) {
		t.Error("a beat wakes, or a loss does not")
	}
}

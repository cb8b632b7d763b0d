package attachment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// tells has host a tell of dead mounts.
func tells(w *kubetest.Clusters, volumes ...string) *moorv1alpha1.DPUStorageNode {
	node := kubetest.DPUStorageNode("a")
	kubetest.Change(w.Host, node, func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Host = &moorv1alpha1.HostState{}
		for _, v := range volumes {
			n.Status.Host.DeadMounts = append(n.Status.Host.DeadMounts, moorv1alpha1.DeadMount{Volume: v, Pods: []types.UID{"u"}, Message: "the device is gone"})
		}
	})
	node, _ = kubetest.Read(w.Host, node)
	return node
}

// TestMountHealthy: the condition comes with the first dead mount of the volume, not with one of
// another, and says when it is over.
func TestMountHealthy(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	for n, step := range []struct {
		dead []string
		want string
	}{
		{nil, ""},
		{[]string{"other"}, ""},
		{[]string{"other", "vol"}, "False the device is gone; pods with this mount: 1"},
		{nil, "True "},
	} {
		tells(w, step.dead...)
		w.MustReconcile(r, "a-vol")
		a, _ := kubetest.Read(w.Host, user("a"))
		got := ""
		if c := meta.FindStatusCondition(a.Status.Conditions, storagev1alpha1.ConditionMountHealthy); c != nil {
			got = string(c.Status) + " " + c.Message
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", n, got, step.want)
		}
	}
}

// TestDeadMountsWake: of a host's attachments those are looked at whose mounts it calls dead.
func TestDeadMountsWake(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"), kubetest.DPUVolumeAttachment("second", "a"))
	for volumes, want := range map[string][]string{"": nil, "vol": {"a-vol"}, "none": nil, "second vol": {"a-second", "a-vol"}} {
		var got []string
		for _, q := range r.ofTold(t.Context(), tells(w, strings.Fields(volumes)...)) {
			got = append(got, q.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", volumes, diff)
		}
	}
}

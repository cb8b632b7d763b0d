package attachment

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestOrphanIsVouchedFor: the right to write is held for a host whose attachments are gone
// by force from both clusters, and whose DPU was replaced. Another host waits, and is told
// the command; the word ends it if it names holder, attachment and epoch.
func TestOrphanIsVouchedFor(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	w.Host.Add(user("a"), user("b"))
	w.MustReconcile(r, "a-vol")
	strip(w)
	kubetest.Change(w.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-new" })
	say := func(change func(*moorv1alpha1.OperatorReceipt)) {
		kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
			c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{
				Epoch: 1, Holder: "dpu-a", AttachmentUID: kubetest.AttachmentUID("a-vol"), Time: &metav1.Time{Time: w.Clock.Now()}, Operator: "jo", Reason: "it was scrapped",
			}
			change(c.Spec.OperatorReceipt)
		})
		w.MustReconcile(r, "b-vol")
	}
	held := func(words string) {
		t.Helper()
		if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-a" {
			t.Fatalf("the claim is %+v", c)
		}
		if got := messageOn(w, "b"); !strings.Contains(got, words) {
			t.Errorf("the host is told %q", got)
		}
	}
	say(func(*moorv1alpha1.OperatorReceipt) {})
	held("patch writerclaim vol --type merge -p '{\"spec\":{\"operatorReceipt\":{\"epoch\":1,\"holder\":\"dpu-a\"") // failover looks at the attachment of the host cluster, which is there
	kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	w.Host.Remove(user("a"))
	say(func(o *moorv1alpha1.OperatorReceipt) { o.AttachmentUID = "another" })
	held("it names DPU dpu-a and attachment UID \"another\"")
	say(func(o *moorv1alpha1.OperatorReceipt) { o.Epoch = 2 })
	held("it names epoch 2")
	say(func(o *moorv1alpha1.OperatorReceipt) { o.Time = &metav1.Time{Time: w.Clock.Now().Add(-time.Hour)} })
	held("write it anew")
	say(func(*moorv1alpha1.OperatorReceipt) {})
	w.MustReconcile(r, "b-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-b" || c.Epoch != 2 || c.RevokedEpoch("dpu-a") != 1 {
		t.Errorf("the claim is %+v", c)
	}
}

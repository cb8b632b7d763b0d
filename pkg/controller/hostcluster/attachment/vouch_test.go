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

// TestTheLastOneThatGoes: the only attachment of a volume goes, its DPU was taken out for good, and
// the claim is lost. Nothing but its own pass holds that claim against what others know, and
// hears a person's word, which counts once the DPU is silent.
func TestTheLastOneThatGoes(t *testing.T) {
	for name, lose := range map[string]func(*kubetest.Clusters){
		"deleted": loseClaim,
		"older than what the host cluster remembers": func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
				v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 9, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: kubetest.AttachmentUID("a-vol")}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			silent := false
			r.Clock, r.Silent = w.Clock, func(dpu string) bool { return silent && dpu == "dpu-a" }
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, mirror("a"), shown)
			w.MustReconcile(r, "a-vol")
			gone := removed(w)
			w.MustReconcile(r, "a-vol")
			w.Clock.SetTime(gone.DeletionTimestamp.Add(time.Minute))
			lose(w)
			writes := w.Writes()
			w.MustReconcile(r, "a-vol")
			if got := asksAgain(t, r); got != silenceAgain {
				t.Errorf("it is looked at again after %s", got)
			}
			if n := w.Writes() - writes; n > 1 {
				t.Errorf("%d writes while its DPU can answer", n)
			}
			silent = true
			w.MustReconcile(r, "a-vol")
			w.MustReconcile(r, "a-vol")
			c := claimOf(w)
			if c.Status == nil || c.Status.Phase != moorv1alpha1.ClaimLost || c.Status.Lost[0].DPU != "dpu-a" {
				t.Fatalf("the claim is %+v", c.Status)
			}
			if got := messageOn(w, "a"); !strings.Contains(got, "patch writerclaim vol --type merge") {
				t.Errorf("the host is told %q", got)
			}
			kubetest.Change(w.DPU, c, func(c *moorv1alpha1.WriterClaim) {
				c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{
					Epoch: c.Status.Epoch, Holder: "dpu-a", AttachmentUID: c.Status.Lost[0].AttachmentUID, Time: &metav1.Time{Time: w.Clock.Now()}, Operator: "jo", Reason: "it was scrapped",
				}
			})
			silent = false
			w.MustReconcile(r, "a-vol")
			if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimLost {
				t.Fatalf("a word about a DPU that can answer counted: %+v", c)
			}
			silent = true
			w.MustReconcile(r, "a-vol")
			if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimFree || c.RevokedEpoch("dpu-a") == 0 {
				t.Errorf("the claim is %+v", c)
			}
			w.MustReconcile(r, "a-vol")
			if _, found := kubetest.Read(w.Host, user("a")); found {
				t.Error("the attachment is still there")
			}
		})
	}
}

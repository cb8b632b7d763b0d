package writer

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// claims are every claim that an attachment "a-vol" of DPU "dpu-a" can meet;
// mine says that it is the attachment's own.
func claims() map[string]struct {
	claim *moorv1alpha1.WriterClaim
	mine  bool
	// bound: the claim says for which object it was granted.
	bound bool
} {
	out := map[string]struct {
		claim *moorv1alpha1.WriterClaim
		mine  bool
		bound bool
	}{"nil": {}, "new": {claim: &moorv1alpha1.WriterClaim{}}}
	for _, phase := range []moorv1alpha1.ClaimPhase{moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing} {
		for _, attachment := range []string{"a-vol", "b-vol"} {
			for i, holder := range []string{"dpu-a", "dpu-b", "dpu-a", "dpu-b", "dpu-a", "dpu-b"} {
				uid := []types.UID{"a", "", "earlier"}[i/2]
				name := fmt.Sprintf("%s of %s (%q) on %s", phase, attachment, uid, holder)
				c := out[name]
				c.claim = &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Attachment: attachment, AttachmentUID: uid, Holder: holder, Epoch: 4}}
				c.mine = phase != moorv1alpha1.ClaimFree && attachment == "a-vol" && holder == "dpu-a" && uid != "earlier"
				c.bound = uid != ""
				out[name] = c
			}
		}
	}
	return out
}

// TestDetach goes through every combination: only an attachment that is being
// deleted, without the node driver's finalizer, and not shown, frees the claim
// that is its own.
func TestDetach(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		for _, finalizer := range []bool{false, true} {
			for _, attached := range []bool{false, true} {
				for name, c := range claims() {
					t.Run(fmt.Sprintf("deleting=%v finalizer=%v attached=%v claim %s", deleting, finalizer, attached, name), func(t *testing.T) {
						want := Wait
						switch {
						case !deleting || finalizer || attached:
						case c.mine && c.bound:
							want = FreeClaim
						case c.mine: // of another object, for all that is known
						default:
							want = LetGo
						}
						got, receipt := Detach(attachment(deleting, finalizer, attached), c.claim)
						if got != want {
							t.Errorf("step %d, want %d", got, want)
						}
						if has := receipt != (moorv1alpha1.Receipt{}); has != (want == FreeClaim) {
							t.Errorf("receipt %+v", receipt)
						}
						if want == FreeClaim && (receipt.Kind != moorv1alpha1.ReceiptDPU || receipt.Holder != "dpu-a" || receipt.Epoch != 4 || receipt.Message == "") {
							t.Errorf("receipt %+v", receipt)
						}
					})
				}
			}
		}
	}
}

// TestDetachWithoutTheVendor: where the vendor's plugin does not let go of its
// device, the epoch that the DPU has retired is the receipt, if it is no less
// than the claim's and the attachment's; and only for what is being deleted and
// not shown.
func TestDetachWithoutTheVendor(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		for _, attached := range []bool{false, true} {
			for epoch := range int64(6) {
				for over := range int64(6) {
					for name, c := range claims() { // all under epoch 4
						t.Run(fmt.Sprintf("deleting=%v attached=%v epoch=%d retired=%d claim %s", deleting, attached, epoch, over, name), func(t *testing.T) {
							want := Wait
							switch {
							case !deleting || attached || over < epoch || over == 0 || epoch == 0 && !c.mine:
							case c.mine && over >= 4:
								want = FreeClaim
							case !c.mine:
								want = LetGo
							}
							a := attachment(deleting, true, attached)
							a.Spec.Epoch, a.Status.DPU.RetiredEpoch = epoch, over
							if got, _ := Detach(a, c.claim); got != want {
								t.Errorf("step %d, want %d", got, want)
							}
						})
					}
				}
			}
		}
	}
}

func attachment(deleting, finalizer, attached bool) *storagev1alpha1.VolumeAttachment {
	a := &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a-vol", UID: "a", Finalizers: []string{storagev1alpha1.FinalizerWriterClaim}},
		Spec:       storagev1alpha1.VolumeAttachmentSpec{NodeName: "dpu-a", Source: storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Name: "vol"}}},
	}
	if deleting {
		now := metav1.NewTime(time.Unix(1e9, 0))
		a.DeletionTimestamp = &now
	}
	if finalizer {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	}
	a.Status.DPU.Attached = attached
	return a
}

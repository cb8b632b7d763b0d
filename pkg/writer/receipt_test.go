package writer

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// TestProve goes through the whole product of facts about a claim of epoch 4
// that is being fenced, and about its VolumeAttachment.
func TestProve(t *testing.T) {
	flags := []bool{false, true}
	for _, mirrorIs := range []string{"gone", "mine", "of whatever object", "made anew", "another's", "of another name"} {
		for _, deleting := range flags {
			for _, finalizer := range flags {
				for _, attached := range flags {
					for _, retired := range []int64{0, 3, 4, 5} {
						for bits := range 64 {
							for _, operator := range []int64{0, 3, 4, 5} {
								storage := Revocation{Vouched: bits&1 != 0, Asked: bits&2 != 0, Noticed: bits&4 != 0, Gone: bits&8 != 0, Driver: "d"}
								claim, mirror := facts(mirrorIs, deleting, finalizer, attached, retired, operator)
								revokes(mirror, bits&16 != 0, bits&32 != 0)
								mine := mirrorIs == "mine"
								named := mine || mirrorIs == "of whatever object" || mirrorIs == "made anew"
								want := moorv1alpha1.ReceiptKind("")
								switch {
								case mine && !attached && (retired >= 4 || deleting && !finalizer):
									want = moorv1alpha1.ReceiptDPU
								case mirrorIs == "of whatever object" && !attached && retired >= 4:
									want = moorv1alpha1.ReceiptDPU
								case named && deleting && bits == 31:
									want = moorv1alpha1.ReceiptStorage
								case operator == 4:
									want = moorv1alpha1.ReceiptOperator
								}
								got, message := Prove(claim, Evidence{Attachment: mirror, Storage: storage, Operator: operator == 4})
								name := fmt.Sprintf("%s deleting=%v finalizer=%v attached=%v retired=%d storage=%+v operator=%d", mirrorIs, deleting, finalizer, attached, retired, storage, operator)
								checkReceipt(t, name, got, message, want)
							}
						}
					}
				}
			}
		}
	}
}

func facts(mirrorIs string, deleting, finalizer, attached bool, retired, operator int64) (*moorv1alpha1.WriterClaim, *storagev1alpha1.VolumeAttachment) {
	claim := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 4}}
	if operator != 0 {
		claim.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{Epoch: operator, Time: &metav1.Time{Time: clockNow}, Operator: "jo", Reason: "pulled the plug"}
	}
	mirror := attachment(deleting, finalizer, attached)
	mirror.Status.DPU.RetiredEpoch = retired
	switch mirrorIs {
	case "gone":
		return claim, nil
	case "of whatever object":
		claim.Status.AttachmentUID = ""
	case "made anew":
		mirror.UID = "anew"
	case "another's":
		mirror.Spec.NodeName = "dpu-b"
	case "of another name":
		mirror.Name = "b-vol"
	}
	return claim, mirror
}

// revokes has the attacher say of the attachment that the volume was revoked, or of one
// that had the name before it.
func revokes(mirror *storagev1alpha1.VolumeAttachment, says, ofAnother bool) {
	if mirror == nil || !says && !ofAnother {
		return
	}
	mirror.Status.Revocation = &storagev1alpha1.StorageRevocation{AttachmentUID: mirror.UID, NodeID: "node-a"}
	if ofAnother {
		mirror.Status.Revocation.AttachmentUID = "before"
	}
}

func checkReceipt(t *testing.T, name string, got *moorv1alpha1.Receipt, message string, want moorv1alpha1.ReceiptKind) {
	t.Helper()
	switch {
	case want == "" && got != nil:
		t.Errorf("%s: receipt %+v out of nothing", name, got)
	case want == "" && message == "":
		t.Errorf("%s: no message", name)
	case want != "" && (got == nil || got.Kind != want || got.Holder != "dpu-a" || got.Epoch != 4 || got.Message == ""):
		t.Errorf("%s: receipt %+v, want %s", name, got, want)
	}
}

// TestProveOnlyWhileFencing: a claim in any other phase has no receipt.
func TestProveOnlyWhileFencing(t *testing.T) {
	for _, phase := range []moorv1alpha1.ClaimPhase{"", moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted} {
		claim, mirror := facts("mine", true, false, false, 4, 4)
		claim.Status.Phase = phase
		if got, _ := Prove(claim, Evidence{Attachment: mirror, Storage: Revocation{true, true, true, true, "d"}, Lease: Lease{Given: true}, Operator: true}); got != nil {
			t.Errorf("phase %q: receipt %+v", phase, got)
		}
	}
	if got, _ := Prove(&moorv1alpha1.WriterClaim{}, Evidence{Lease: Lease{Given: true}}); got != nil {
		t.Errorf("a claim without status: receipt %+v", got)
	}
}

// TestLeaseComesThird: the DPU's own word and the storage's count before it, the
// operator's after it.
func TestLeaseComesThird(t *testing.T) {
	over := Lease{Given: true}
	claim, mirror := facts("mine", true, true, true, 0, 4)
	revokes(mirror, true, false)
	for _, c := range []struct {
		want    moorv1alpha1.ReceiptKind
		retired int64
		storage Revocation
		lease   Lease
	}{
		{moorv1alpha1.ReceiptDPU, 4, Revocation{true, true, true, true, "d"}, over},
		{moorv1alpha1.ReceiptStorage, 0, Revocation{true, true, true, true, "d"}, over},
		{moorv1alpha1.ReceiptLeaseBound, 0, Revocation{}, over},
		{moorv1alpha1.ReceiptOperator, 0, Revocation{}, Lease{Given: true, Left: 1}},
		{moorv1alpha1.ReceiptOperator, 0, Revocation{}, Lease{Left: -1}},
	} {
		mirror.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: c.retired == 0, RetiredEpoch: c.retired}
		got, message := Prove(claim, Evidence{Attachment: mirror, Storage: c.storage, Lease: c.lease, Operator: true})
		checkReceipt(t, string(c.want), got, message, c.want)
	}
	// It does not matter what became of the attachment.
	claim.Spec.OperatorReceipt = nil
	got, message := Prove(claim, Evidence{Lease: over})
	checkReceipt(t, "no attachment", got, message, moorv1alpha1.ReceiptLeaseBound)
}

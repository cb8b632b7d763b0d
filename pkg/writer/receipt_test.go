package writer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		if got, _ := Prove(claim, Evidence{Attachment: mirror, Storage: Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true, Driver: "d"}, Lease: Lease{Given: true}, Operator: true}); got != nil {
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
		{moorv1alpha1.ReceiptDPU, 4, Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true, Driver: "d"}, over},
		{moorv1alpha1.ReceiptStorage, 0, Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true, Driver: "d"}, over},
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

// TestProveFirstEpoch: each proof ends the first epoch as any other, and a claim without an
// epoch is ended by none: there is nothing that the next grant could be above.
func TestProveFirstEpoch(t *testing.T) {
	for kind, of := range map[moorv1alpha1.ReceiptKind]func(*storagev1alpha1.VolumeAttachment) Evidence{
		moorv1alpha1.ReceiptDPU: func(a *storagev1alpha1.VolumeAttachment) Evidence {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 1}
			return Evidence{Attachment: a}
		},
		moorv1alpha1.ReceiptMedium: func(a *storagev1alpha1.VolumeAttachment) Evidence {
			saysFenced(a, 2, false)
			return Evidence{Attachment: a}
		},
		moorv1alpha1.ReceiptLeaseBound: func(*storagev1alpha1.VolumeAttachment) Evidence { return Evidence{Lease: Lease{Given: true}} },
		moorv1alpha1.ReceiptOperator:   func(*storagev1alpha1.VolumeAttachment) Evidence { return Evidence{Operator: true} },
	} {
		for _, epoch := range []int64{0, 1} {
			claim, a := facts("mine", false, true, true, 0, epoch)
			claim.Status.Epoch = epoch
			claim.Spec.OperatorReceipt = vouches()
			got, message := Prove(claim, of(a))
			if (got != nil) != (epoch == 1) || got != nil && (got.Kind != kind || got.Epoch != 1) || (got == nil) != (message != "") {
				t.Errorf("%s of epoch %d: %+v, %q", kind, epoch, got, message)
			}
		}
	}
}

// TestNoWordIsNoProof: neither an operator's that is not there, nor an attacher's that was
// written of no object.
func TestNoWordIsNoProof(t *testing.T) {
	claim, mirror := facts("mine", true, true, true, 0, 0)
	if got, _ := Prove(claim, Evidence{Attachment: mirror, Operator: true}); got != nil {
		t.Errorf("without an operator's word: %+v", got)
	}
	claim.Status.AttachmentUID, mirror.UID = "", ""
	revokes(mirror, true, false)
	if got, _ := Prove(claim, Evidence{Attachment: mirror, Storage: Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true, Driver: "d"}}); got != nil {
		t.Errorf("of no object: %+v", got)
	}
	if got, message := Prove(nil, Evidence{Operator: true}); got != nil || message != "the claim is not being fenced" {
		t.Errorf("without a claim: %+v, %q", got, message)
	}
}

// TestMissing: what is waited for while nothing is proven, in the words that people read.
func TestMissing(t *testing.T) {
	silent := func(r Revocation) Evidence { r.Driver = "csi.d"; return Evidence{Storage: r} }
	for name, tc := range map[string]struct {
		mirrorIs string
		evidence Evidence
		change   func(*storagev1alpha1.VolumeAttachment)
		want     string
	}{
		"gone":             {mirrorIs: "gone", want: "; VolumeAttachment a-vol is gone, which proves nothing"},
		"another's":        {mirrorIs: "another's", want: "; VolumeAttachment a-vol is gone, which proves nothing"},
		"made anew":        {mirrorIs: "made anew", want: "; VolumeAttachment a-vol was made anew (UID anew, not a), so it proves nothing of its DPU"},
		"made anew, heard": {mirrorIs: "made anew", evidence: silent(Revocation{}), want: "; VolumeAttachment a-vol was made anew (UID anew, not a), so it proves nothing of its DPU"},
		"heard":            {mirrorIs: "mine", want: "; the DPU is asked to withdraw"},
		"heard, and the storage is asked": {
			mirrorIs: "mine", change: func(a *storagev1alpha1.VolumeAttachment) { a.Spec.FenceEpoch = 5 },
			want: "; the DPU is asked to withdraw, and the storage to accept nothing of this epoch",
		},
		"heard, and an earlier fence was asked": {mirrorIs: "mine", change: func(a *storagev1alpha1.VolumeAttachment) { a.Spec.FenceEpoch = 4 }, want: "; the DPU is asked to withdraw"},
		"the storage does not revoke": {
			mirrorIs: "mine", evidence: silent(Revocation{Asked: true, Noticed: true, Gone: true}),
			want: "; the DPU is silent, and CSIDriver csi.d does not carry storage.moor.dev/revokes=true, so the storage's word does not count",
		},
		"nothing to revoke":   {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Noticed: true, Gone: true}), want: "; the DPU is silent, and the storage has nothing to revoke"},
		"not noticed":         {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Asked: true, Gone: true}), want: "; the DPU is silent, and snap-controller has not noticed yet that the attachment ends"},
		"without its word":    {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true}), want: "; the DPU is silent, and SVVolumeAttachment a-vol is gone without the word of the attacher of CSIDriver csi.d that the volume was revoked, which proves nothing"},
		"cut off":             {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Asked: true, Noticed: true, Cut: true}), want: "; the DPU does not reach the storage, and CSIDriver csi.d is asked to revoke it"},
		"being revoked":       {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Asked: true, Noticed: true}), want: "; the DPU is silent, and CSIDriver csi.d is asked to revoke it"},
		"not revoked yet":     {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Asked: true, Noticed: true, Says: "its pod failed"}), want: "; the DPU is silent, and CSIDriver csi.d is asked to revoke it: its pod failed"},
		"revoked, not ending": {mirrorIs: "mine", evidence: silent(Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true}), change: func(a *storagev1alpha1.VolumeAttachment) { revokes(a, true, false) }, want: "; the DPU is silent, and CSIDriver csi.d is asked to revoke it"},
	} {
		t.Run(name, func(t *testing.T) {
			claim, mirror := facts(tc.mirrorIs, false, true, true, 0, 0)
			if tc.change != nil {
				tc.change(mirror)
			}
			const begin, lease, word = "waiting for proof that DPU dpu-a can no longer write under epoch 4", "; the DPU withdraws by itself, and the bound of its lease is waited for", "; an operator who knows that DPU dpu-a cannot write may write spec.operatorReceipt "
			tc.evidence.Attachment = mirror
			if _, got := Prove(claim, tc.evidence); !strings.HasPrefix(got, begin+tc.want+word) {
				t.Errorf("%q, want %q", got, begin+tc.want)
			}
			tc.evidence.Lease, tc.evidence.Refused = Lease{Given: true, Left: 1}, "the word is old"
			if _, got := Prove(claim, tc.evidence); got != begin+tc.want+lease+"; the word is old" {
				t.Errorf("with a lease, and a word that does not count: %q", got)
			}
		})
	}
}

// TestTakesRevocation: only an attachment that ends, is known to end, is of that DPU and may hold its claim takes
// the word of the attacher.
func TestTakesRevocation(t *testing.T) {
	for bits := range 16 {
		a := attachment(bits&1 != 0, true, true)
		a.Spec.NodeName, a.Finalizers, a.Status.StorageDetaching = "dpu-b", nil, bits&4 != 0
		if bits&2 != 0 {
			a.Spec.NodeName = "dpu-a"
		}
		if bits&8 != 0 {
			a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
		}
		if got := TakesRevocation(a, "dpu-a"); got != (bits == 15) {
			t.Errorf("%04b: %v", bits, got)
		}
	}
}

// TestWithheld goes through every combination: the storage's word may be needed only of the very object that the
// claim names, under its epoch, while the DPU has not let go.
func TestWithheld(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		for _, finalizer := range []bool{false, true} {
			for _, attached := range []bool{false, true} {
				for _, epoch := range []int64{0, 3, 4, 5} {
					for _, retired := range []int64{0, 3, 4} {
						for name, c := range claims() {
							a := attachment(deleting, finalizer, attached)
							a.Spec.Epoch, a.Status.DPU.RetiredEpoch = epoch, retired
							want := int64(0)
							if released := deleting && !attached && (!finalizer || retired == 4); c.mine && c.bound && epoch == 4 && !released {
								want = 4
							}
							if got := Withheld(a, c.claim); got != want {
								t.Errorf("deleting=%v finalizer=%v attached=%v epoch=%d retired=%d claim %s: %d, want %d", deleting, finalizer, attached, epoch, retired, name, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// TestWordOfTheStorage: the storage's word is of this attachment and node, and stays as it was said.
func TestWordOfTheStorage(t *testing.T) {
	then, now := time.Unix(1e9, 0), time.Unix(2e9, 0)
	said := func(uid types.UID, node string, at time.Time) *storagev1alpha1.StorageRevocation {
		return &storagev1alpha1.StorageRevocation{AttachmentUID: uid, NodeID: node, Time: metav1.NewTime(at)}
	}
	for name, tc := range map[string]struct {
		has, want *storagev1alpha1.StorageRevocation
	}{
		"nothing was said":           {nil, said("u", "n", now)},
		"it was said":                {said("u", "n", then), said("u", "n", then)},
		"it was said of another UID": {said("v", "n", then), said("u", "n", now)},
		"it was said of another":     {said("u", "m", then), said("u", "n", now)},
	} {
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
		a.Status.Revocation = tc.has
		if Revoked(a, "n", now); *a.Status.Revocation != *tc.want {
			t.Errorf("%s: %+v, want %+v", name, a.Status.Revocation, tc.want)
		}
	}
}

// TestPowerAlone: other proofs are waited for wherever one can come.
func TestPowerAlone(t *testing.T) {
	silent := func() Evidence {
		return Evidence{Attachment: &storagev1alpha1.VolumeAttachment{}, Storage: Revocation{Driver: "d", Asked: true, Noticed: true}}
	}
	for name, c := range map[string]struct {
		change func(*Evidence)
		want   bool
	}{
		"nothing revokes":               {func(*Evidence) {}, true},
		"nothing to revoke":             {func(e *Evidence) { e.Storage.Asked = false }, true},
		"no attachment":                 {func(e *Evidence) { e.Attachment = nil }, true},
		"the storage revokes":           {func(e *Evidence) { e.Storage.Vouched = true }, false},
		"the DPU is heard":              {func(e *Evidence) { e.Storage = Revocation{} }, false},
		"the DPU is heard, and cut off": {func(e *Evidence) { e.Storage.Cut = true }, false},
		"the DPU gave a lease":          {func(e *Evidence) { e.Lease = Lease{Given: true, Left: 1} }, false},
		"the storage knows epochs":      {func(e *Evidence) { e.Attachment.Status.DPU.OpenEpoch = new(int64) }, false},
	} {
		e := silent()
		if c.change(&e); e.PowerAlone() != c.want {
			t.Errorf("%s: %v, want %v", name, !c.want, c.want)
		}
	}
}

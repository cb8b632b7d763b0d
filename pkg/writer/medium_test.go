package writer

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// saysFenced has the attacher say of the attachment, or of one that had its name before,
// below which epoch the storage accepts nothing.
func saysFenced(a *storagev1alpha1.VolumeAttachment, epoch int64, ofAnother bool) {
	if a == nil || epoch == 0 {
		return
	}
	a.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: a.UID, Epoch: epoch}
	if ofAnother {
		a.Status.Fence.AttachmentUID = "before"
	}
}

// TestProveByTheMedium: the storage's word about an epoch above that of the claim is a
// receipt, whatever its DPU does or says; about this epoch, or an earlier one, it is none,
// nor if it was written of another attachment, or of one that is not the claim's.
func TestProveByTheMedium(t *testing.T) {
	flags := []bool{false, true}
	for _, mirrorIs := range []string{"gone", "mine", "of whatever object", "made anew", "another's", "of another name"} {
		for _, fenced := range []int64{0, 3, 4, 5, 9} {
			for _, deleting := range flags {
				for _, attached := range flags {
					for _, ofAnother := range flags {
						claim, mirror := facts(mirrorIs, deleting, true, attached, 0, 0)
						saysFenced(mirror, fenced, ofAnother)
						named := mirrorIs == "mine" || mirrorIs == "of whatever object" || mirrorIs == "made anew"
						want := moorv1alpha1.ReceiptKind("")
						if named && fenced > 4 && !ofAnother {
							want = moorv1alpha1.ReceiptMedium
						}
						got, message := Prove(claim, Evidence{Attachment: mirror})
						checkReceipt(t, fmt.Sprintf("%s fenced=%d deleting=%t attached=%t of another=%t", mirrorIs, fenced, deleting, attached, ofAnother), got, message, want)
					}
				}
			}
		}
	}
}

// TestMediumIsSecond: the DPU's own word leaves it nothing to clear up, so it counts
// first; all others come after the storage's.
func TestMediumIsSecond(t *testing.T) {
	claim, mirror := facts("mine", true, true, true, 0, 4)
	revokes(mirror, true, false)
	saysFenced(mirror, 5, false)
	e := Evidence{Attachment: mirror, Storage: Revocation{Vouched: true, Asked: true, Noticed: true, Gone: true, Driver: "d"}, Lease: Lease{Given: true}, Operator: true}
	got, message := Prove(claim, e)
	checkReceipt(t, "shown", got, message, moorv1alpha1.ReceiptMedium)
	mirror.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	got, message = Prove(claim, e)
	checkReceipt(t, "retired", got, message, moorv1alpha1.ReceiptDPU)
	claim.Status.Epoch, mirror.Status.DPU.RetiredEpoch = 0, 0
	if got, _ := Prove(claim, Evidence{Attachment: mirror}); got != nil {
		t.Errorf("a claim without an epoch: %+v", got)
	}
}

// TestUnfenced: a DPU begins to show only what the storage has fenced below this epoch,
// by its word of this very attachment.
func TestUnfenced(t *testing.T) {
	for _, epoch := range []int64{0, 4} {
		for _, fenced := range []int64{0, 3, 4, 5} {
			for _, ofAnother := range []bool{false, true} {
				a := attachment(false, true, false)
				a.Spec.Epoch = epoch
				saysFenced(a, fenced, ofAnother)
				want := epoch > 0 && fenced >= epoch && !ofAnother
				if got := Unfenced(a); (got == "") != want {
					t.Errorf("epoch %d, fenced %d, of another %t: %q", epoch, fenced, ofAnother, got)
				}
			}
		}
	}
	a := attachment(false, true, false)
	a.Spec.Epoch, a.UID = 4, ""
	a.Status.Fence = &storagev1alpha1.StorageFence{Epoch: 4}
	if Unfenced(a) == "" {
		t.Error("a word of no object counts")
	}
}

// TestToFence: what is asked of the storage, and that it never shuts out a device that is
// shown under the epoch and was opened without it.
func TestToFence(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*storagev1alpha1.VolumeAttachment)
		want   int64
	}{
		"granted":                      {func(*storagev1alpha1.VolumeAttachment) {}, 4},
		"granted and open":             {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.OpenEpoch = ptr.To(int64(4)) }, 4},
		"not granted":                  {func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 0 }, 0},
		"a replica":                    {func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }, 0},
		"no epochs":                    {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.OpenEpoch = nil }, 0},
		"going":                        {func(a *storagev1alpha1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: clockNow} }, 0},
		"shown, open without an epoch": {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true }, 0},
		"shown, open at an earlier one": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU.Attached, a.Status.DPU.OpenEpoch = true, ptr.To(int64(3))
		}, 0},
		"shown, open at its epoch": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU.Attached, a.Status.DPU.OpenEpoch = true, ptr.To(int64(4))
		}, 4},
		"said":                       {func(a *storagev1alpha1.VolumeAttachment) { saysFenced(a, 4, false) }, 0},
		"said of an earlier epoch":   {func(a *storagev1alpha1.VolumeAttachment) { saysFenced(a, 3, false) }, 4},
		"said of another attachment": {func(a *storagev1alpha1.VolumeAttachment) { saysFenced(a, 4, true) }, 4},
		"being taken": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Spec.FenceEpoch, a.Status.DPU.Attached = 5, true
			saysFenced(a, 4, false)
		}, 5},
		"being taken and going": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Spec.FenceEpoch, a.DeletionTimestamp = 5, &metav1.Time{Time: clockNow}
			saysFenced(a, 4, false)
		}, 5},
		"taken": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Spec.FenceEpoch = 5
			saysFenced(a, 5, false)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := attachment(false, true, false)
			a.Spec.Epoch, a.Status.DPU.OpenEpoch = 4, new(int64)
			c.change(a)
			if got := ToFence(a); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestFenceFor: the storage is asked to shut a holder out only while its claim is in
// Fencing, which never goes back to Granted, and once.
func TestFenceFor(t *testing.T) {
	for _, mirrorIs := range []string{"gone", "mine", "of whatever object", "made anew", "another's", "of another name"} {
		for _, phase := range []moorv1alpha1.ClaimPhase{"", moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing, moorv1alpha1.ClaimLost} {
			for _, epochs := range []bool{false, true} {
				for _, asked := range []int64{0, 4, 5, 6} {
					claim, a := facts(mirrorIs, false, true, true, 0, 0)
					claim.Status.Phase = phase
					if a != nil {
						a.Spec.FenceEpoch = asked
						if epochs {
							a.Status.DPU.OpenEpoch = new(int64)
						}
					}
					named := mirrorIs == "mine" || mirrorIs == "of whatever object" || mirrorIs == "made anew"
					want := int64(0)
					if named && epochs && phase == moorv1alpha1.ClaimFencing && asked <= 4 {
						want = 5
					}
					if got := FenceFor(claim, a); got != want {
						t.Errorf("%s, phase %q, epochs %t, asked %d: got %d, want %d", mirrorIs, phase, epochs, asked, got, want)
					}
				}
			}
		}
	}
	if got := FenceFor(nil, nil); got != 0 {
		t.Errorf("without a claim: %d", got)
	}
}

// TestFirstEpochAtTheMedium: the first epoch is fenced below as any other, and no word is
// none about it.
func TestFirstEpochAtTheMedium(t *testing.T) {
	a := attachment(false, true, false)
	a.Spec.Epoch, a.Status.DPU.OpenEpoch = 1, new(int64)
	const waits = "waits for snap-external-attacher: the storage has not said yet that it accepts nothing of volume vol below epoch 1"
	if got := Unfenced(a); got != waits || FencedBelow(a) != 0 || ToFence(a) != 1 {
		t.Errorf("%q, fenced below %d, to fence %d", got, FencedBelow(a), ToFence(a))
	}
	saysFenced(a, 1, false)
	if got := Unfenced(a); got != "" || FencedBelow(a) != 1 || ToFence(a) != 0 {
		t.Errorf("%q, fenced below %d, to fence %d", got, FencedBelow(a), ToFence(a))
	}
	claim := inPhase(moorv1alpha1.ClaimFencing)
	for epoch, want := range map[int64]int64{0: 0, 1: 2} {
		if claim.Status.Epoch = epoch; FenceFor(claim, a) != want {
			t.Errorf("epoch %d: the storage is asked to fence below %d, want %d", epoch, FenceFor(claim, a), want)
		}
	}
}

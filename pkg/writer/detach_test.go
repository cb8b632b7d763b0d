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

// TestDetachOfALostClaim: an attachment whose DPU may still write, as the claim has it on
// record, waits until that DPU has cleared up, whatever place it has there; another is let go.
func TestDetachOfALostClaim(t *testing.T) {
	mine := moorv1alpha1.LostHolder{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 4}
	other := moorv1alpha1.LostHolder{DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Epoch: 3}
	changed := func(change func(*moorv1alpha1.LostHolder)) []moorv1alpha1.LostHolder {
		h := mine
		change(&h)
		return []moorv1alpha1.LostHolder{h}
	}
	for name, tc := range map[string]struct {
		lost []moorv1alpha1.LostHolder
		want Step
	}{
		"it alone":       {[]moorv1alpha1.LostHolder{mine}, Wait},
		"it is second":   {[]moorv1alpha1.LostHolder{other, mine}, Wait},
		"another":        {[]moorv1alpha1.LostHolder{other}, LetGo},
		"another object": {changed(func(h *moorv1alpha1.LostHolder) { h.AttachmentUID = "before" }), LetGo},
		"another name":   {changed(func(h *moorv1alpha1.LostHolder) { h.Attachment = "b-vol" }), LetGo},
	} {
		claim := inPhase(moorv1alpha1.ClaimLost)
		claim.Status.Attachment, claim.Status.AttachmentUID, claim.Status.Lost = "", "", tc.lost
		if got, receipt := Detach(attachment(true, false, false), claim); got != tc.want || receipt != (moorv1alpha1.Receipt{}) {
			t.Errorf("%s: step %d with receipt %+v, want %d", name, got, receipt, tc.want)
		}
	}
}

// TestUnproven: what an attachment that was let go of does not prove for the claim that is
// held for its name, in the words that people read.
func TestUnproven(t *testing.T) {
	const (
		gone    = "DPU dpu-a holds the right to write volume vol (epoch 4) for VolumeAttachment a-vol (UID before), which is gone without a receipt: nothing is granted before it is proven that this DPU cannot write any more; an operator "
		unnamed = "the right to write volume vol was granted (epoch 4) before claims said for which VolumeAttachment, and DPU dpu-a has not retired that epoch on this one: it may have been made anew, and proves nothing; an operator "
	)
	for name, tc := range map[string]struct {
		uid    types.UID
		change func(*moorv1alpha1.WriterClaim, *storagev1alpha1.VolumeAttachment)
		want   string
	}{
		"its own":                       {uid: "a"},
		"another object's":              {uid: "before", want: gone},
		"another object's, and retired": {"before", func(_ *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 4 }, gone},
		"of no object":                  {uid: "", want: unnamed},
		"of no object, and retired":     {uid: "", change: func(_ *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 4 }},
		"of no object, earlier retired": {"", func(_ *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 3 }, unnamed},
		"another DPU's":                 {uid: "before", change: func(c *moorv1alpha1.WriterClaim, _ *storagev1alpha1.VolumeAttachment) { c.Status.Holder = "dpu-b" }},
		"free": {uid: "before", change: func(c *moorv1alpha1.WriterClaim, _ *storagev1alpha1.VolumeAttachment) {
			c.Status.Phase = moorv1alpha1.ClaimFree
		}},
	} {
		claim, a := inPhase(moorv1alpha1.ClaimGranted), attachment(true, false, false)
		claim.Status.AttachmentUID = tc.uid
		if tc.change != nil {
			tc.change(claim, a)
		}
		if got := Unproven(a, claim); (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := Unproven(attachment(true, false, false), nil); got != "" {
		t.Errorf("without a claim: %q", got)
	}
}

// TestEarly: the vendor's plugin has two seconds from the deletion on, by whatever clock; then
// nothing more is waited for.
func TestEarly(t *testing.T) {
	deleted := attachment(true, true, false).DeletionTimestamp.Time
	for name, tc := range map[string]struct {
		deleting, finalizer bool
		after               time.Duration
		want                time.Duration
	}{
		"just deleted":               {true, true, 0, 2 * time.Second},
		"a moment later":             {true, true, 500 * time.Millisecond, 1500 * time.Millisecond},
		"in the last moment":         {true, true, 2*time.Second - 1, 1},
		"it has waited":              {true, true, 2 * time.Second, 0},
		"long ago":                   {true, true, time.Hour, 0},
		"a server that is ahead":     {true, true, -time.Hour, 2 * time.Second},
		"the node driver has let go": {true, false, 0, 0},
		"it is not being deleted":    {false, true, 0, 0},
	} {
		if got := Early(attachment(tc.deleting, tc.finalizer, false), deleted.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestSurrendered: of an attachment that stands, the DPU's word that the epoch is over ends
// the claim that is granted for that very object under it, and no other.
func TestSurrendered(t *testing.T) {
	stands := func() *storagev1alpha1.VolumeAttachment {
		a := attachment(false, true, false)
		a.Spec.Epoch, a.Status.DPU.RetiredEpoch = 4, 4
		return a
	}
	for name, c := range claims() {
		got := Surrendered(stands(), c.claim)
		want := c.mine && c.bound && c.claim.Status.Phase == moorv1alpha1.ClaimGranted
		if (got != nil) != want {
			t.Errorf("claim %s: %+v, want one: %v", name, got, want)
		}
		if got != nil && (got.Kind != moorv1alpha1.ReceiptDPU || got.Epoch != 4 || got.AttachmentUID != "a" || !ends(c.claim, *got)) {
			t.Errorf("claim %s: %+v", name, got)
		}
	}
	for name, change := range map[string]func(*storagev1alpha1.VolumeAttachment){
		"it is shown":         func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true },
		"it goes":             func(a *storagev1alpha1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: clockNow} },
		"less was retired":    func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch, a.Status.DPU.RetiredEpoch = 3, 3 },
		"a later one counts":  func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 5 },
		"it was given no one": func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 0 },
		"it is another":       func(a *storagev1alpha1.VolumeAttachment) { a.UID = "other" },
	} {
		a := stands()
		change(a)
		if got := Surrendered(a, inPhase(moorv1alpha1.ClaimGranted)); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSurrenderedEpochs: the first epoch can be given back, and a claim without one cannot.
func TestSurrenderedEpochs(t *testing.T) {
	for epoch, want := range map[int64]bool{0: false, 1: true} {
		claim := inPhase(moorv1alpha1.ClaimGranted)
		claim.Status.Epoch = epoch
		a := attachment(false, true, false)
		a.Spec.Epoch, a.Status.DPU.RetiredEpoch = 1, 1
		if got := Surrendered(a, claim); (got != nil) != want {
			t.Errorf("epoch %d: %+v, want one: %v", epoch, got, want)
		}
	}
}

// TestAbandonedWords: it is told for which DPU is waited, and what to do if that is silent.
func TestAbandonedWords(t *testing.T) {
	a := attachment(true, true, true)
	if got := Abandoned(a); !strings.Contains(got, "waiting for DPU "+a.Spec.NodeName) {
		t.Errorf("%q", got)
	}
	if got := AbandonedBySilent(a, inPhase(moorv1alpha1.ClaimGranted), "it has expired"); got != Abandoned(a)+", which is silent; it has expired" {
		t.Errorf("%q", got)
	}
}

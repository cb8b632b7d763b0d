package writer

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// shows is an attachment of DPU dpu-a that shows the volume under epoch 3.
func shows() *storagev1alpha1.VolumeAttachment {
	a := attachment(false, true, true)
	a.Spec.Epoch, a.Status.DPU.Epoch = 3, 3
	return a
}

// TestLost: a claim that knows less than others grants nothing and lets nothing be shown,
// until the DPU has looked at all that it shows; then it goes on above what was known.
func TestLost(t *testing.T) {
	for name, claim := range map[string]*moorv1alpha1.WriterClaim{
		"made anew":       {Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol"}},
		"free, of before": {Status: &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			a := shows()
			lost, err := Lose(claim, Seen(a), []moorv1alpha1.LostHolder{MayWrite(a)})
			if err != nil || !IsLost(lost) || !Held(lost) || lost.Status.Epoch != 3 || lost.Status.LostEpoch != 3 || lost.Status.Holder != "dpu-a" {
				t.Fatalf("%v: %+v", err, lost)
			}
			me := HolderOf(a)
			if v := Judge(lost, me); v.Grant || !strings.Contains(v.Refused, "DPU dpu-a (VolumeAttachment a-vol, epoch 3)") {
				t.Errorf("granted: %+v", v)
			}
			if _, err := Grant(lost, me); err == nil || Refusal("dpu-a", a, lost) == "" || Holds(lost, me) || !FencedFrom(lost, "dpu-a") || FencedFrom(lost, "dpu-b") {
				t.Error("it gives a right")
			}
			if LostEpoch("dpu-a", a, lost) != 3 || LostEpoch("dpu-b", a, lost) != 0 {
				t.Error("not taken from the DPU that shows it, or from another")
			}
			recovers(t, lost)
		})
	}
}

func recovers(t *testing.T, lost *moorv1alpha1.WriterClaim) {
	t.Helper()
	for name, tc := range map[string]struct {
		change func(*storagev1alpha1.VolumeAttachment)
		want   bool
	}{
		"shown": {func(*storagev1alpha1.VolumeAttachment) {}, false},
		"cleared": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 3}
		}, true},
		"cleared, shown": {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.ClearedEpoch = 3 }, false},
		"an older epoch": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 2}
		}, false},
		"retired alone": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}
		}, false},
		"another object": {func(a *storagev1alpha1.VolumeAttachment) {
			a.UID, a.Status.DPU = "anew", storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 3}
		}, false},
	} {
		a := shows()
		tc.change(a)
		after := Recover(lost, a, clockNow)
		if (after != nil) != tc.want {
			t.Errorf("%s: recovered %v", name, after != nil)
		}
		if after == nil {
			continue
		}
		if v := Judge(after, HolderOf(a)); !v.Grant || v.Epoch != 4 || after.Status.Holder != "" || len(after.Status.Lost) != 0 || LastReceipt(after).Epoch != 3 {
			t.Errorf("%s: %+v, the verdict is %+v", name, after.Status, v)
		}
	}
}

// TestLoseKeepsWhoHeldIt: a claim that was restored knows of a holder itself; that one has
// to be proven over too. What is being fenced stays so.
func TestLoseKeepsWhoHeldIt(t *testing.T) {
	other := moorv1alpha1.LostHolder{DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Epoch: 5}
	lost, err := Lose(inPhase(moorv1alpha1.ClaimGranted), 5, []moorv1alpha1.LostHolder{other})
	if err != nil || len(lost.Status.Lost) != 2 || lost.Status.Lost[1].DPU != "dpu-a" {
		t.Errorf("%v: %+v", err, lost)
	}
	if _, err := Lose(inPhase(moorv1alpha1.ClaimFencing), 5, nil); err == nil {
		t.Error("a fence is forgotten")
	}
	if _, err := Lose(inPhase(moorv1alpha1.ClaimFree), 4, nil); err == nil {
		t.Error("a claim that knows all is lost")
	}
	if free, err := Lose(inPhase(moorv1alpha1.ClaimFree), 6, nil); err != nil || Held(free) || free.Status.Epoch != 6 {
		t.Errorf("no DPU may write, and the claim is %+v, %v", free, err)
	}
}

// TestWritable: what an attachment says itself of whether its DPU may write.
func TestWritable(t *testing.T) {
	for name, tc := range map[string]struct {
		epoch int64
		dpu   storagev1alpha1.VolumeAttachmentDPU
		want  bool
	}{
		"nothing was granted":    {0, storagev1alpha1.VolumeAttachmentDPU{}, false},
		"granted":                {3, storagev1alpha1.VolumeAttachmentDPU{}, true},
		"retired":                {3, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}, false},
		"an earlier one retired": {3, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 2}, true},
		"retired, and shown":     {3, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3, Attached: true}, true},
		"shown, of no epoch":     {0, storagev1alpha1.VolumeAttachmentDPU{Attached: true}, true},
	} {
		a := shows()
		a.Spec.Epoch, a.Status.DPU = tc.epoch, tc.dpu
		if got := Writable(a); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

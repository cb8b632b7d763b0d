package writer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// marked is what the host cluster remembers of epoch 5, of DPU dpu-a.
func marked(over bool) *storagev1alpha1.LastGrant {
	last := Mark(Holder{DPU: "dpu-a", Attachment: "a-vol", UID: "u-5"}, 5)
	last.Over = over
	return last
}

func claimIn(phase moorv1alpha1.ClaimPhase, epoch int64, uid types.UID) *moorv1alpha1.WriterClaim {
	out := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Epoch: epoch}}
	if phase != moorv1alpha1.ClaimFree {
		out.Status.Holder, out.Status.Attachment, out.Status.AttachmentUID = "dpu-a", "a-vol", uid
	}
	return out
}

// TestMarkedEpoch: a claim that knows less than the mark has lost its record; so has one
// that has granted the same epoch to another.
func TestMarkedEpoch(t *testing.T) {
	if MarkedEpoch(nil, claimIn(moorv1alpha1.ClaimFree, 3, "")) != 0 {
		t.Error("there is no mark, and an epoch")
	}
	for name, tc := range map[string]struct {
		claim  *moorv1alpha1.WriterClaim
		epoch  int64
		behind bool
	}{
		"no claim":                    {nil, 5, true},
		"made anew":                   {&moorv1alpha1.WriterClaim{}, 5, true},
		"older":                       {claimIn(moorv1alpha1.ClaimFree, 4, ""), 5, true},
		"granted":                     {claimIn(moorv1alpha1.ClaimGranted, 5, "u-5"), 5, false},
		"free since":                  {claimIn(moorv1alpha1.ClaimFree, 5, ""), 5, false},
		"granted again, not told yet": {claimIn(moorv1alpha1.ClaimGranted, 6, "u-6"), 5, false},
		"the epoch is another's":      {claimIn(moorv1alpha1.ClaimGranted, 5, "u-x"), 6, true},
		"of before, by name":          {claimIn(moorv1alpha1.ClaimGranted, 5, ""), 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			epoch := MarkedEpoch(marked(false), tc.claim)
			if behind := Behind(tc.claim, epoch); epoch != tc.epoch || behind != tc.behind {
				t.Errorf("epoch %d, behind %v", epoch, behind)
			}
		})
	}
}

// TestMarked: the mark is written for each grant once, and over no other.
func TestMarked(t *testing.T) {
	h := Holder{DPU: "dpu-a", Attachment: "a-vol", UID: "u-5"}
	if !Marked(marked(false), h, 5) || !Marked(marked(true), h, 5) {
		t.Error("it is written again")
	}
	for name, last := range map[string]*storagev1alpha1.LastGrant{"none": nil, "another epoch": Mark(h, 4), "another DPU": Mark(Holder{DPU: "dpu-b", Attachment: "a-vol", UID: "u-5"}, 5), "another object": Mark(Holder{DPU: "dpu-a", Attachment: "a-vol", UID: "u"}, 5), "another attachment": Mark(Holder{DPU: "dpu-a", Attachment: "b-vol", UID: "u-5"}, 5)} {
		if Marked(last, h, 5) {
			t.Errorf("%s: it is not written", name)
		}
	}
}

// TestRemembered: the DPU of the last grant may write, for all that is known, unless its
// epoch is over, or its attachment knows of it and says for itself.
func TestRemembered(t *testing.T) {
	mirror := func(uid types.UID, epoch int64) []storagev1alpha1.VolumeAttachment {
		a := shows()
		a.UID, a.Spec.Epoch, a.Status.DPU.Epoch = uid, epoch, 0
		return []storagev1alpha1.VolumeAttachment{*a}
	}
	mine := moorv1alpha1.LostHolder{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "u-5", Epoch: 5}
	other := moorv1alpha1.LostHolder{DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "u-b", Epoch: 3}
	for name, tc := range map[string]struct {
		holders []moorv1alpha1.LostHolder
		mirrors []storagev1alpha1.VolumeAttachment
		last    *storagev1alpha1.LastGrant
		want    []moorv1alpha1.LostHolder
	}{
		"nothing else is known":               {nil, nil, marked(false), []moorv1alpha1.LostHolder{mine}},
		"it is over":                          {nil, nil, marked(true), nil},
		"there is no mark":                    {[]moorv1alpha1.LostHolder{other}, nil, nil, []moorv1alpha1.LostHolder{other}},
		"another may write too":               {[]moorv1alpha1.LostHolder{other}, nil, marked(false), []moorv1alpha1.LostHolder{other, mine}},
		"its attachment knows of it":          {nil, mirror("u-5", 5), marked(false), nil},
		"its attachment was restored":         {nil, mirror("u-5", 4), marked(false), []moorv1alpha1.LostHolder{mine}},
		"its attachment was made anew":        {nil, mirror("u", 5), marked(false), []moorv1alpha1.LostHolder{mine}},
		"only the host cluster knows":         {[]moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", Epoch: 4}}, nil, marked(false), []moorv1alpha1.LostHolder{mine}},
		"its attachment, restored, may write": {[]moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "u", Epoch: 4}}, mirror("u", 4), marked(false), []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "u", Epoch: 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Remembered(tc.holders, tc.mirrors, tc.last)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMarkAlone: a claim that knows less than the mark alone grants nothing before the DPU
// of the mark has cleared up, by whatever attachment of its name; one whose epoch was over
// goes on above it at once, and lets no DPU into the storage that has not cleared up.
func TestMarkAlone(t *testing.T) {
	claim := &moorv1alpha1.WriterClaim{Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol", AfterEpoch: 5}}
	if _, err := Grant(claim, Holder{DPU: "dpu-b", Attachment: "b-vol", UID: "u"}); err == nil || !Behind(claim, 0) {
		t.Error("a claim that was made anew is granted before it is noted who may write")
	}
	over, err := Lose(claim, 5, Remembered(nil, nil, marked(true)))
	if err != nil || Held(over) || Judge(over, Holder{}).Epoch != 6 || Uncleared(over, "dpu-x", 4) != 5 || Behind(over, 5) {
		t.Fatalf("%v: %+v", err, over)
	}
	lost, err := Lose(claim, 5, Remembered(nil, nil, marked(false)))
	if err != nil || !IsLost(lost) {
		t.Fatalf("%v: %+v", err, lost)
	}
	made := attachment(false, true, false)
	made.UID = "u-new"
	me := HolderOf(made)
	if !Asks(lost, Holder{DPU: me.DPU, Attachment: me.Attachment}) || Asks(lost, Holder{DPU: "dpu-b", Attachment: "a-vol"}) || Asks(lost, Holder{DPU: me.DPU, Attachment: "b-vol"}) {
		t.Error("the DPU of the mark is not asked, or another is")
	}
	if LostEpoch(me.DPU, made, lost) != 0 || Recover(lost, made, clockNow) != nil {
		t.Error("what was made anew speaks for what was lost, before it is asked")
	}
	going, foreign := made.DeepCopy(), made.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: clockNow}
	foreign.Spec.NodeName = "dpu-b"
	if Adopt(lost, going) != nil || Adopt(lost, foreign) != nil {
		t.Error("one that goes, or is of another DPU, is asked")
	}
	asked := Adopt(lost, made)
	if asked == nil || LostEpoch(me.DPU, made, asked) != 5 || Adopt(asked, made) != nil || Asks(asked, me) {
		t.Fatalf("the claim is %+v", asked)
	}
	made.Status.DPU.ClearedEpoch = 5
	if c := Recover(asked, made, clockNow); c == nil || Held(c) || c.Status.Epoch != 5 || Judge(c, me).Epoch != 6 {
		t.Errorf("the DPU has cleared up, and the claim is %+v", c)
	}
}

// TestEndMark: only a receipt of this very epoch ends the mark.
func TestEndMark(t *testing.T) {
	for _, claim := range []*moorv1alpha1.WriterClaim{
		nil,
		{},
		claimIn(moorv1alpha1.ClaimGranted, 5, "u-5"),
		claimIn(moorv1alpha1.ClaimFencing, 5, "u-5"),
		claimIn(moorv1alpha1.ClaimLost, 5, ""),
		claimIn(moorv1alpha1.ClaimFree, 4, ""),
		claimIn(moorv1alpha1.ClaimFree, 6, ""),
	} {
		if EndMark(marked(false), claim) != nil {
			t.Errorf("claim %+v ends it", claim)
		}
	}
	end := claimIn(moorv1alpha1.ClaimFree, 5, "")
	if EndMark(nil, end) != nil || EndMark(marked(true), end) != nil {
		t.Error("what is not there, or over, ends")
	}
	if got := EndMark(marked(false), end); got == nil || !got.Over || !cmp.Equal(marked(true), got) {
		t.Errorf("got %+v", got)
	}
}

// TestRememberedIsOneOfThem: the DPU of the mark is the one of the list that has its name and
// its attachment's; another with one of the two is another.
func TestRememberedIsOneOfThem(t *testing.T) {
	mine := moorv1alpha1.LostHolder{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "u-5", Epoch: 5}
	for name, other := range map[string]moorv1alpha1.LostHolder{
		"its attachment, on another DPU": {DPU: "dpu-b", Attachment: "a-vol", AttachmentUID: "u", Epoch: 4},
		"its DPU, for another":           {DPU: "dpu-a", Attachment: "b-vol", AttachmentUID: "u", Epoch: 4},
	} {
		if diff := cmp.Diff([]moorv1alpha1.LostHolder{other, mine}, Remembered([]moorv1alpha1.LostHolder{other}, nil, marked(false))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestAdoptOnce: an attachment that has an entry of its own is not asked for another one too:
// its word would count for both.
func TestAdoptOnce(t *testing.T) {
	mine := moorv1alpha1.LostHolder{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 4}
	earlier := moorv1alpha1.LostHolder{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "before", Epoch: 3}
	for _, holders := range [][]moorv1alpha1.LostHolder{{mine, earlier}, {earlier, mine}} {
		lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, holders)
		if err != nil {
			t.Fatal(err)
		}
		if got := Adopt(lost, attachment(false, true, false)); got != nil {
			t.Errorf("%+v", got.Status.Lost)
		}
	}
}

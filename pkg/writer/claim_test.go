package writer

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

var clockNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func inPhase(phase moorv1alpha1.ClaimPhase) *moorv1alpha1.WriterClaim {
	c := &moorv1alpha1.WriterClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "vol", ResourceVersion: "7"},
		Spec:       moorv1alpha1.WriterClaimSpec{VolumeName: "vol"},
		Status:     &moorv1alpha1.WriterClaimStatus{Phase: phase, Epoch: 4},
	}
	if phase != moorv1alpha1.ClaimFree {
		c.Status.Holder, c.Status.Attachment, c.Status.AttachmentUID = "dpu-a", "a-vol", "a"
	}
	return c
}

// TestTransitions: what each transition leaves, what it changes nothing of, and
// from which phases there is none.
func TestTransitions(t *testing.T) {
	const free, granted, fencing = moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing
	receipt := func(kind moorv1alpha1.ReceiptKind) moorv1alpha1.Receipt {
		return moorv1alpha1.Receipt{Kind: kind, Holder: "dpu-a", AttachmentUID: "a", Epoch: 4, Message: "m"}
	}
	freeWith := func(r moorv1alpha1.Receipt) func(*moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
		return func(c *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) { return Free(c, r, clockNow) }
	}
	stamped := func(r moorv1alpha1.Receipt) []moorv1alpha1.Receipt {
		r.Time = metav1.NewTime(clockNow)
		return []moorv1alpha1.Receipt{r}
	}
	later, other, reborn, bare := receipt(moorv1alpha1.ReceiptDPU), receipt(moorv1alpha1.ReceiptDPU), receipt(moorv1alpha1.ReceiptDPU), receipt(moorv1alpha1.ReceiptDPU)
	later.Epoch, other.Holder, reborn.AttachmentUID, bare.AttachmentUID = 5, "dpu-b", "a2", ""
	status := func(s moorv1alpha1.WriterClaimStatus) *moorv1alpha1.WriterClaimStatus { return &s }
	revoked := []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 4}}
	byOther := func(k moorv1alpha1.ReceiptKind) map[moorv1alpha1.ClaimPhase]*moorv1alpha1.WriterClaimStatus {
		return map[moorv1alpha1.ClaimPhase]*moorv1alpha1.WriterClaimStatus{
			fencing: {Phase: free, Epoch: 4, Receipts: stamped(receipt(k)), Revoked: revoked},
		}
	}
	for name, c := range map[string]struct {
		do   func(*moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error)
		want map[moorv1alpha1.ClaimPhase]*moorv1alpha1.WriterClaimStatus // by the phase before; none: refused
	}{
		"grant": {
			func(c *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
				return Grant(c, Holder{"dpu-b", "b-vol", "b"})
			},
			map[moorv1alpha1.ClaimPhase]*moorv1alpha1.WriterClaimStatus{
				free: status(moorv1alpha1.WriterClaimStatus{Phase: granted, Holder: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Epoch: 5}),
			},
		},
		"begin fencing": {BeginFencing, map[moorv1alpha1.ClaimPhase]*moorv1alpha1.WriterClaimStatus{
			granted: status(moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 4}),
		}},
		"free, by the DPU": {freeWith(receipt(moorv1alpha1.ReceiptDPU)), map[moorv1alpha1.ClaimPhase]*moorv1alpha1.WriterClaimStatus{
			granted: {Phase: free, Epoch: 4, Receipts: stamped(receipt(moorv1alpha1.ReceiptDPU))},
			fencing: {Phase: free, Epoch: 4, Receipts: stamped(receipt(moorv1alpha1.ReceiptDPU))},
		}},
		"free, by the storage":       {freeWith(receipt(moorv1alpha1.ReceiptStorage)), byOther(moorv1alpha1.ReceiptStorage)},
		"free, by the medium":        {freeWith(receipt(moorv1alpha1.ReceiptMedium)), byOther(moorv1alpha1.ReceiptMedium)},
		"free, by the lease's bound": {freeWith(receipt(moorv1alpha1.ReceiptLeaseBound)), byOther(moorv1alpha1.ReceiptLeaseBound)},
		"free, by an operator":       {freeWith(receipt(moorv1alpha1.ReceiptOperator)), byOther(moorv1alpha1.ReceiptOperator)},
		"free, of another epoch":     {freeWith(later), nil},
		"free, of another DPU":       {freeWith(other), nil},
		"free, of another object":    {freeWith(reborn), nil},
		"free, of no object":         {freeWith(bare), nil},
		"free, of an unknown kind":   {freeWith(receipt("Later")), nil},
		"free, without a receipt":    {freeWith(moorv1alpha1.Receipt{}), nil},
	} {
		for _, phase := range []moorv1alpha1.ClaimPhase{"", free, granted, fencing, "Later"} {
			want := c.want[phase]
			before := inPhase(phase)
			got, err := c.do(before)
			if want == nil {
				if !errors.Is(err, ErrTransition) || got != nil {
					t.Errorf("%s from %q: %v, %v: want it refused", name, phase, got, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s from %q: %v", name, phase, err)
				continue
			}
			if d := cmp.Diff(want, got.Status); d != "" {
				t.Errorf("%s from %q: %s", name, phase, d)
			}
			if got.ResourceVersion != "7" {
				t.Errorf("%s from %q: it is not compared with what was read", name, phase)
			}
			if d := cmp.Diff(inPhase(phase), before); d != "" {
				t.Errorf("%s from %q changes its argument: %s", name, phase, d)
			}
		}
	}
}

// TestGrantOfNewClaim: the first epoch is 1.
func TestGrantOfNewClaim(t *testing.T) {
	got, err := Grant(&moorv1alpha1.WriterClaim{}, Holder{"dpu-a", "a-vol", "a"})
	if err != nil || got.Status.Epoch != 1 || !Holds(got, Holder{"dpu-a", "a-vol", "a"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestGrantKeeps: receipts, and who has to clear up, outlive a grant.
func TestGrantKeeps(t *testing.T) {
	c := inPhase(moorv1alpha1.ClaimFree)
	c.Status.Receipts = []moorv1alpha1.Receipt{{Kind: moorv1alpha1.ReceiptStorage, Holder: "dpu-a", Epoch: 4}}
	c.Status.Revoked = []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 4}}
	got, err := Grant(c, Holder{"dpu-b", "b-vol", "b"})
	if err != nil || got.Status.RevokedEpoch("dpu-a") != 4 || LastReceipt(got) == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRevoked: the last epoch of each DPU that another ended, and no other.
func TestRevoked(t *testing.T) {
	var list []moorv1alpha1.Revoked
	for _, r := range []moorv1alpha1.Receipt{{Holder: "a", Epoch: 1}, {Holder: "b", Epoch: 2}, {Holder: "a", Epoch: 3}} {
		list = revoke(list, r)
	}
	s := &moorv1alpha1.WriterClaimStatus{Revoked: list}
	if len(list) != 2 || s.RevokedEpoch("a") != 3 || s.RevokedEpoch("b") != 2 || s.RevokedEpoch("c") != 0 {
		t.Errorf("got %+v", list)
	}
}

// TestKeepsReceipts: the last of them, as many as the schema allows.
func TestKeepsReceipts(t *testing.T) {
	c := inPhase(moorv1alpha1.ClaimFencing)
	for e := range int64(keepReceipts) {
		c.Status.Receipts = append(c.Status.Receipts, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "x", Epoch: e - 10})
	}
	got, err := Free(c, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", AttachmentUID: "a", Epoch: 4}, clockNow)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Status.Receipts; len(r) != keepReceipts || r[keepReceipts-1].Epoch != 4 || r[0].Epoch != -9 {
		t.Errorf("receipts %+v, want the last %d", r, keepReceipts)
	}
}

// TestPredicates goes through every phase, DPU and attachment.
func TestPredicates(t *testing.T) {
	me := Holder{"dpu-a", "a-vol", "a"}
	for _, none := range []*moorv1alpha1.WriterClaim{nil, {}} {
		if Held(none) || Holds(none, me) || InFencing(none, me) || FencedFrom(none, "dpu-a") || Vouched(none, me) || GrantedFor(none, "a-vol") || HolderFor(none, "a-vol") != (Holder{}) {
			t.Errorf("%+v is held", none)
		}
	}
	for _, phase := range []moorv1alpha1.ClaimPhase{moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing} {
		for _, dpu := range []string{"dpu-a", "dpu-b"} {
			for _, attachment := range []string{"a-vol", "b-vol"} {
				for i, vouches := range []int64{0, 3, 4, 0, 3, 4, 0, 3, 4} {
					uid := []types.UID{"", "a", "earlier"}[i/3]
					c := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: dpu, Attachment: attachment, AttachmentUID: uid, Epoch: 4}}
					if vouches != 0 {
						c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{Epoch: vouches}
					}
					held, mine := phase != "Free", dpu == "dpu-a" && attachment == "a-vol" && uid != "earlier"
					got := [6]bool{Held(c), Holds(c, me), InFencing(c, me), FencedFrom(c, "dpu-a"), Vouched(c, me), GrantedFor(c, "a-vol")}
					want := [6]bool{
						held, held && mine, phase == "Fencing" && mine, phase == "Fencing" && dpu == "dpu-a",
						held && mine && vouches == 4, phase == "Granted" && attachment == "a-vol",
					}
					if by := HolderFor(c, "a-vol"); (by.DPU != "") != (held && attachment == "a-vol") || by.DPU != "" && !Holds(c, by) {
						t.Errorf("%+v is held by %+v for a-vol", c.Status, by)
					}
					if got != want {
						t.Errorf("%+v, vouched %d: %v, want %v", c.Status, vouches, got, want)
					}
				}
			}
		}
	}
}

// TestNewClaim: of a claim that was never granted nothing is taken, ended or bound.
func TestNewClaim(t *testing.T) {
	for name, do := range map[string]func(*moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error){
		"begin fencing": BeginFencing,
		"free": func(c *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
			return Free(c, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU}, clockNow)
		},
		"bind": func(c *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
			return Bind(c, attachment(false, true, false))
		},
	} {
		if got, err := do(&moorv1alpha1.WriterClaim{}); !errors.Is(err, ErrTransition) || got != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestGrantSaysWhyNot: an attachment that is not there, a claim that is held, and one of
// which it is not noted yet who may write.
func TestGrantSaysWhyNot(t *testing.T) {
	to := Holder{DPU: "dpu-b", Attachment: "b-vol", UID: "b"}
	anew := &moorv1alpha1.WriterClaim{Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol", AfterEpoch: 5}}
	for name, tc := range map[string]struct {
		claim *moorv1alpha1.WriterClaim
		to    Holder
		want  string
	}{
		"no attachment": {inPhase(moorv1alpha1.ClaimFree), Holder{DPU: "dpu-b", Attachment: "b-vol"}, "grant volume vol to DPU dpu-b: VolumeAttachment b-vol is not there: "},
		"held":          {inPhase(moorv1alpha1.ClaimGranted), to, `grant volume vol to DPU dpu-b in phase "Granted": `},
		"made anew":     {anew, to, "grant volume vol to DPU dpu-b: epochs up to 5 were granted before the claim was made, and it has not been noted of whom: "},
	} {
		got, err := Grant(tc.claim, tc.to)
		if want := tc.want + ErrTransition.Error(); got != nil || !errors.Is(err, ErrTransition) || err.Error() != want {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, want)
		}
	}
}

// TestNameless: only a claim that is held by a name alone. One that was lost names who may
// write in its list.
func TestNameless(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.WriterClaimStatus)
		want   bool
	}{
		"granted to an object":  {func(*moorv1alpha1.WriterClaimStatus) {}, false},
		"granted by name":       {func(s *moorv1alpha1.WriterClaimStatus) { s.AttachmentUID = "" }, true},
		"being fenced, by name": {func(s *moorv1alpha1.WriterClaimStatus) { s.Phase, s.AttachmentUID = moorv1alpha1.ClaimFencing, "" }, true},
		"lost":                  {func(s *moorv1alpha1.WriterClaimStatus) { s.Phase, s.AttachmentUID = moorv1alpha1.ClaimLost, "" }, false},
		"free":                  {func(s *moorv1alpha1.WriterClaimStatus) { s.Phase, s.AttachmentUID = moorv1alpha1.ClaimFree, "" }, false},
	} {
		claim := inPhase(moorv1alpha1.ClaimGranted)
		tc.change(claim.Status)
		if got := Nameless(claim); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if Nameless(nil) {
		t.Error("no claim is held by name")
	}
}

// TestBind: a claim of before gets the UID of the attachment that holds it by name once the
// DPU's finalizer is on it, and only while nothing is being taken away.
func TestBind(t *testing.T) {
	for name, tc := range map[string]struct {
		claim  func(*moorv1alpha1.WriterClaimStatus)
		change func(*storagev1alpha1.VolumeAttachment)
		want   bool
	}{
		"granted by name":        {want: true},
		"granted to an object":   {claim: func(s *moorv1alpha1.WriterClaimStatus) { s.AttachmentUID = "before" }},
		"being fenced":           {claim: func(s *moorv1alpha1.WriterClaimStatus) { s.Phase = moorv1alpha1.ClaimFencing }},
		"of another DPU":         {claim: func(s *moorv1alpha1.WriterClaimStatus) { s.Holder = "dpu-b" }},
		"for another attachment": {claim: func(s *moorv1alpha1.WriterClaimStatus) { s.Attachment = "b-vol" }},
		"without the finalizer": {change: func(a *storagev1alpha1.VolumeAttachment) {
			a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
		}},
		"on its way out":           {change: func(a *storagev1alpha1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: clockNow} }},
		"an attachment without ID": {change: func(a *storagev1alpha1.VolumeAttachment) { a.UID = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			claim, a := inPhase(moorv1alpha1.ClaimGranted), attachment(false, true, true)
			claim.Status.AttachmentUID = ""
			if tc.claim != nil {
				tc.claim(claim.Status)
			}
			if tc.change != nil {
				tc.change(a)
			}
			before := claim.DeepCopy()
			got, err := Bind(claim, a)
			if d := cmp.Diff(before, claim); d != "" {
				t.Errorf("it changes its argument: %s", d)
			}
			if !tc.want {
				if want := "bind the right to write volume vol to VolumeAttachment a-vol: " + ErrTransition.Error(); got != nil || !errors.Is(err, ErrTransition) || err.Error() != want {
					t.Errorf("%+v, %v, want %q", got, err, want)
				}
				return
			}
			before.Status.AttachmentUID = "a"
			if d := cmp.Diff(before, got); err != nil || d != "" {
				t.Errorf("%v: %s", err, d)
			}
		})
	}
}

// TestReceiptsFitTheSchema: a claim never has more receipts than the API server takes, nor an
// epoch on record that it refuses: a claim that it refuses would stay held for good.
func TestReceiptsFitTheSchema(t *testing.T) {
	text, err := os.ReadFile("../../crds/dpu/storage.moor.dev_writerclaims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
	if got := status["receipts"].MaxItems; got == nil || *got != keepReceipts {
		t.Errorf("the schema takes %v receipts, and a claim keeps %d", got, keepReceipts)
	}
	if got := status["revoked"].Items.Schema.Properties["epoch"].Minimum; got == nil || *got != 1 {
		t.Errorf("the schema takes revoked epochs from %v on", got)
	}
	first := moorv1alpha1.Revoked{DPU: "dpu-a", Epoch: 1}
	list := revoke(nil, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptOperator, Holder: "dpu-a", Epoch: 1})
	list = revoke(list, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptOperator, Holder: "dpu-b"})
	if d := cmp.Diff([]moorv1alpha1.Revoked{first}, list); d != "" {
		t.Errorf("one of the first epoch is on record, and one of none is not: %s", d)
	}
}

// TestHeldBy: a DPU can write by a claim that it holds in any phase, by one that was lost and
// lists it, and by one that does not know who may.
func TestHeldBy(t *testing.T) {
	status := func(phase moorv1alpha1.ClaimPhase, lost ...string) *moorv1alpha1.WriterClaimStatus {
		s := &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: "d", Epoch: 3}
		for _, dpu := range lost {
			s.Lost = append(s.Lost, moorv1alpha1.LostHolder{DPU: dpu})
		}
		return s
	}
	for name, c := range map[string]struct {
		status     *moorv1alpha1.WriterClaimStatus
		after      int64
		own, other bool
	}{
		"never granted":         {nil, 0, false, false},
		"made anew":             {nil, 4, true, true},
		"free":                  {status(moorv1alpha1.ClaimFree), 0, false, false},
		"free, and behind":      {status(moorv1alpha1.ClaimFree), 4, true, true},
		"granted":               {status(moorv1alpha1.ClaimGranted), 0, true, false},
		"being fenced":          {status(moorv1alpha1.ClaimFencing), 0, true, false},
		"lost":                  {status(moorv1alpha1.ClaimLost, "d"), 0, true, false},
		"lost, by both":         {status(moorv1alpha1.ClaimLost, "d", "e"), 0, true, true},
		"lost, and none listed": {status(moorv1alpha1.ClaimLost), 0, true, false},
	} {
		claim := &moorv1alpha1.WriterClaim{Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v", AfterEpoch: c.after}, Status: c.status}
		if own, other := HeldBy(claim, "d"), HeldBy(claim, "e"); own != c.own || other != c.other {
			t.Errorf("%s: held by its holder %t, by another %t", name, own, other)
		}
	}
	if HeldBy(nil, "d") {
		t.Error("no claim is held")
	}
}

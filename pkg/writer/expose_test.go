package writer

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// TestRefusal holds the decision to its rule over every combination.
func TestRefusal(t *testing.T) {
	shownBy := func(epoch int64) *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a1", UID: "u1"}}
		a.Spec.Source.VolumeRef = &storagev1alpha1.ObjectRef{Name: "v1"}
		a.Spec.Epoch = epoch
		return a
	}
	for _, claim := range []*moorv1alpha1.WriterClaim{nil, {}} {
		if Refusal("d1", shownBy(1), claim) == "" {
			t.Errorf("allowed by claim %+v", claim)
		}
	}
	allowed := 0
	for _, phase := range []moorv1alpha1.ClaimPhase{"", moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing, "Later"} {
		for _, holder := range []string{"", "d1", "d2"} {
			for i, name := range []string{"", "a1", "a2", "", "a1", "a2", "", "a1", "a2"} {
				uid := []types.UID{"", "u1", "u0"}[i/3]
				for _, epoch := range []int64{0, 1, 2} {
					for _, mine := range []int64{0, 1, 2} {
						for _, role := range []storagev1alpha1.Role{"", storagev1alpha1.RolePrimary, storagev1alpha1.RoleReplica} {
							for _, retired := range []int64{0, 1, 2} {
								claim := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: holder, Attachment: name, AttachmentUID: uid, Epoch: epoch}}
								want := phase == "Granted" && holder == "d1" && name == "a1" && uid != "u0" && epoch == mine && mine != 0 && role != "Replica" && epoch > retired
								a := shownBy(mine)
								a.Spec.Role, a.Status.DPU.RetiredEpoch = role, retired
								got := Refusal("d1", a, claim)
								if (got == "") != want {
									t.Errorf("%s: allowed is %v: %q", fmt.Sprint(*claim.Status, mine, role, retired), got == "", got)
								}
								fenced := FencedEpoch("d1", a, claim)
								if wantFenced := phase == "Fencing" && holder == "d1" && name == "a1" && uid != "u0"; wantFenced != (fenced != 0 || epoch == 0 && wantFenced) || (fenced != 0 && fenced != epoch) {
									t.Errorf("%s: fenced epoch is %d", fmt.Sprint(*claim.Status), fenced)
								}
								if want {
									allowed++
								}
							}
						}
					}
				}
			}
		}
	}
	// Epoch 1 over no retired one, epoch 2 over none and over 1; each in
	// two ways to say Primary; for this object, and for whatever has its name.
	if allowed != 12 {
		t.Fatalf("%d combinations are allowed, want 12", allowed)
	}
}

func TestSingleWriter(t *testing.T) {
	volume := func(modes ...corev1.PersistentVolumeAccessMode) *storagev1alpha1.Volume {
		return &storagev1alpha1.Volume{Spec: storagev1alpha1.VolumeSpec{Request: storagev1alpha1.VolumeRequest{AccessModes: modes}}}
	}
	plain, marked, granted := &storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.VolumeAttachment{}
	marked.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	granted.Spec.Epoch = 3
	cases := map[string]struct {
		attachment *storagev1alpha1.VolumeAttachment
		volume     *storagev1alpha1.Volume
		want       bool
	}{
		"RWO":                {plain, volume(corev1.ReadWriteOnce), true},
		"RWOP":               {plain, volume(corev1.ReadWriteOncePod), true},
		"no mode":            {plain, volume(), true},
		"RWX":                {plain, volume(corev1.ReadWriteMany), false},
		"ROX":                {plain, volume(corev1.ReadOnlyMany), false},
		"RWX, but marked":    {marked, volume(corev1.ReadWriteMany), true},
		"RWX, but granted":   {granted, volume(corev1.ReadWriteMany), true},
		"gone":               {plain, nil, false},
		"gone, once granted": {granted, nil, true},
	}
	for name, c := range cases {
		if got := SingleWriter(c.attachment, c.volume); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestStands: whatever differs from what a pass knows ends it.
func TestStands(t *testing.T) {
	known := func() *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: "u", Finalizers: []string{storagev1alpha1.FinalizerDPUAttachment}}}
		a.Spec.Epoch, a.Status.DPU.RetiredEpoch, a.Status.DPU.DeviceName = 2, 1, "before"
		return a
	}
	gone := metav1.Now()
	for name, c := range map[string]struct {
		change func(*storagev1alpha1.VolumeAttachment)
		device string
		want   bool
	}{
		"the same":                   {func(*storagev1alpha1.VolumeAttachment) {}, "before", true},
		"another object":             {func(a *storagev1alpha1.VolumeAttachment) { a.UID = "v" }, "before", false},
		"being deleted":              {func(a *storagev1alpha1.VolumeAttachment) { a.DeletionTimestamp = &gone }, "before", false},
		"without the finalizer":      {func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil }, "before", false},
		"another epoch":              {func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 3 }, "before", false},
		"an epoch retired":           {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 2 }, "before", false},
		"another role":               {func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }, "before", false},
		"a role that means the same": {func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RolePrimary }, "before", true},
		"another warmth":             {func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Warmth = storagev1alpha1.WarmthAttached }, "before", false},
		"another device":             {func(*storagev1alpha1.VolumeAttachment) {}, "after", false},
	} {
		now := known()
		c.change(now)
		if got := Stands(known(), now, c.device); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestUncleared: a DPU has to clear up what another ended and it has not retired.
func TestUncleared(t *testing.T) {
	claim := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Revoked: []moorv1alpha1.Revoked{{DPU: "d1", Epoch: 4}}}}
	lost := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{LostEpoch: 6, Revoked: []moorv1alpha1.Revoked{{DPU: "d1", Epoch: 7}}}}
	for name, c := range map[string]struct {
		claim   *moorv1alpha1.WriterClaim
		dpu     string
		retired int64
		want    int64
	}{
		"no claim":            {nil, "d1", 0, 0},
		"a new claim":         {&moorv1alpha1.WriterClaim{}, "d1", 0, 0},
		"another DPU":         {claim, "d2", 0, 0},
		"nothing retired":     {claim, "d1", 0, 4},
		"an earlier one":      {claim, "d1", 3, 4},
		"that very one":       {claim, "d1", 4, 0},
		"a later one retired": {claim, "d1", 5, 0},

		"the claim was lost":              {lost, "d2", 0, 6},
		"lost, an earlier one is retired": {lost, "d2", 5, 6},
		"lost, and cleared up since":      {lost, "d2", 6, 0},
		"lost, and revoked since":         {lost, "d1", 6, 7},
		"lost, revoked, cleared up since": {lost, "d1", 7, 0},
	} {
		if got := Uncleared(c.claim, c.dpu, c.retired); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestHeldForAnother: an attachment of the DPU that holds the claim is the one that it is held
// for, or it is not; a claim that lost its record is held for none.
func TestHeldForAnother(t *testing.T) {
	status := func(phase moorv1alpha1.ClaimPhase, dpu, name string, uid types.UID) *moorv1alpha1.WriterClaimStatus {
		return &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: dpu, Attachment: name, AttachmentUID: uid, Epoch: 1}
	}
	for name, tc := range map[string]struct {
		status *moorv1alpha1.WriterClaimStatus
		want   bool
	}{
		"no status":               {nil, false},
		"free":                    {status(moorv1alpha1.ClaimFree, "dpu-0", "va-0", "before"), false},
		"held for it":             {status(moorv1alpha1.ClaimGranted, "dpu-0", "va-0", "uid-0"), false},
		"held for its name":       {status(moorv1alpha1.ClaimGranted, "dpu-0", "va-0", ""), false},
		"held for the one before": {status(moorv1alpha1.ClaimGranted, "dpu-0", "va-0", "before"), true},
		"taken from it":           {status(moorv1alpha1.ClaimFencing, "dpu-0", "va-0", "before"), true},
		"held for another name":   {status(moorv1alpha1.ClaimFencing, "dpu-0", "va-1", "uid-1"), true},
		"held by another DPU":     {status(moorv1alpha1.ClaimGranted, "dpu-1", "va-0", "before"), false},
		"lost":                    {status(moorv1alpha1.ClaimLost, "dpu-0", "", ""), false},
	} {
		a := world{here: true}.attachment()
		if got := HeldForAnother(&moorv1alpha1.WriterClaim{Status: tc.status}, a); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if HeldForAnother(nil, world{here: true}.attachment()) {
		t.Error("without a claim")
	}
}

// TestRefusalSays: what a DPU says of a volume that it does not show.
func TestRefusalSays(t *testing.T) {
	const me = "dpu-a"
	for want, change := range map[string]func(*moorv1alpha1.WriterClaimStatus, *storagev1alpha1.VolumeAttachment){
		"": func(*moorv1alpha1.WriterClaimStatus, *storagev1alpha1.VolumeAttachment) {},
		"a replica of volume vol: kept ready, not shown": func(_ *moorv1alpha1.WriterClaimStatus, a *storagev1alpha1.VolumeAttachment) {
			a.Spec.Role = storagev1alpha1.RoleReplica
		},
		"waits for snap-host-controller to grant the right to write volume vol: no DPU holds it": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Phase = moorv1alpha1.ClaimFree
		},
		"WriterClaim vol was deleted or restored and has lost its record of who may write: not shown before a new grant": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Phase = moorv1alpha1.ClaimLost
		},
		"volume vol is being fenced from DPU dpu-a (epoch 4): not shown until that ends": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Phase = moorv1alpha1.ClaimFencing
		},
		`WriterClaim vol is in phase "Later", which this version does not know: not shown`: func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Phase = "Later"
		},
		"the right to write volume vol is granted for an earlier VolumeAttachment a-vol (UID before, epoch 4), and not for this one: not shown": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.AttachmentUID = "before"
		},
		"volume vol has a single writer, and DPU dpu-b holds it (attachment a-vol, epoch 4): not shown here": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Holder, s.AttachmentUID = "dpu-b", "before"
		},
		"volume vol has a single writer, and DPU dpu-a holds it (attachment b-vol, epoch 4): not shown here": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Attachment, s.AttachmentUID = "b-vol", "b"
		},
		"volume vol has a single writer, and DPU dpu-b holds it (attachment b-vol, epoch 4): not shown here": func(s *moorv1alpha1.WriterClaimStatus, _ *storagev1alpha1.VolumeAttachment) {
			s.Holder, s.Attachment, s.AttachmentUID = "dpu-b", "b-vol", ""
		},
		"the right to write volume vol is granted under epoch 4, this attachment is of epoch 3: not shown": func(_ *moorv1alpha1.WriterClaimStatus, a *storagev1alpha1.VolumeAttachment) {
			a.Spec.Epoch = 3
		},
		"epoch 4 of volume vol is over on DPU dpu-a, which has retired epoch 5: not shown before a new grant": func(_ *moorv1alpha1.WriterClaimStatus, a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU.RetiredEpoch = 5
		},
	} {
		claim, a := inPhase(moorv1alpha1.ClaimGranted), attachment(false, true, false)
		a.Spec.Epoch = 4
		change(claim.Status, a)
		if got := Refusal(me, a, claim); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	const waits = "the right to write volume vol is granted to this DPU: waits for snap-host-controller to write the epoch"
	for _, epochs := range [][2]int64{{4, 0}, {0, 4}, {0, 0}} {
		claim, a := inPhase(moorv1alpha1.ClaimGranted), attachment(false, true, false)
		claim.Status.Epoch, a.Spec.Epoch = epochs[0], epochs[1]
		if got := Refusal(me, a, claim); got != waits {
			t.Errorf("epoch %d of the claim, %d of the attachment: %q", epochs[0], epochs[1], got)
		}
	}
	fresh := inPhase("")
	if got := Refusal(me, attachment(false, true, false), fresh); got != "waits for snap-host-controller to grant the right to write volume vol: no DPU holds it" {
		t.Errorf("a claim without a phase: %q", got)
	}
}

package writer

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// disowned is that step for an attachment of whatever epoch was granted.
func disowned(dpu int) func(claimState) []claimState {
	return func(s claimState) []claimState {
		if s.holder == dpu || s.first(dpu) {
			return nil
		}
		var out []claimState
		for epoch := s.revokedEpoch[dpu] + 1; epoch <= s.epoch; epoch++ {
			next := s
			next.revokedEpoch[dpu] = epoch
			out = append(out, next)
		}
		return out
	}
}

// overOf is an attachment of a DPU that has retired its epoch, and did not let go.
func overOf(dpu, epoch int) *storagev1alpha1.VolumeAttachment {
	a := world{here: true, deleting: true, dpuFin: true, vaEpoch: epoch, retired: epoch}.attachment()
	a.Name, a.Spec.NodeName = names[dpu], dpus[dpu]
	return a
}

// TestDisown: of a DPU that holds nothing of the volume, what its own word has ended, and
// only that; and it is on record until a higher epoch is.
func TestDisown(t *testing.T) {
	for name, tc := range map[string]struct {
		claim  claimState
		change func(*storagev1alpha1.VolumeAttachment)
		want   int64
	}{
		"free":                        {state(free, 2, none, [2]int{}), nil, 1},
		"another holds it":            {state(granted, 2, 1, [2]int{}), nil, 1},
		"a higher epoch is on record": {state(free, 2, none, [2]int{2, 0}), nil, 2},
		"its name is left behind":     {state(free, 2, 0, [2]int{}), nil, 1},
		"the DPU holds it again":      {state(granted, 2, 0, [2]int{}), nil, 0},
		"it is being fenced from it":  {state(fencing, 2, 0, [2]int{}), nil, 0},
		"the claim is older":          {state(free, 0, none, [2]int{}), nil, 0},
		"still shown":                 {state(free, 2, none, [2]int{}), func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true }, 0},
		"not retired":                 {state(free, 2, none, [2]int{}), func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 0 }, 0},
		"not being deleted":           {state(free, 2, none, [2]int{}), func(a *storagev1alpha1.VolumeAttachment) { a.DeletionTimestamp = nil }, 0},
		"the claim still holds it": {state(free, 2, none, [2]int{}), func(a *storagev1alpha1.VolumeAttachment) {
			a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := overOf(0, 1)
			if tc.change != nil {
				tc.change(a)
			}
			before := tc.claim.claim()
			after, err := Disown(before, a)
			if (err == nil) != (tc.want != 0) {
				t.Fatalf("error %v", err)
			}
			if err == nil && (after.Status.RevokedEpoch(dpus[0]) != tc.want || stateOf(t, before) != tc.claim) {
				t.Errorf("on record is %+v; the claim that was given is %+v", after.Status, before.Status)
			}
			if err == nil && !OverWithoutDPU(a, after) {
				t.Error("on record, and not over without its DPU")
			}
		})
	}
	if _, err := Disown(&moorv1alpha1.WriterClaim{}, overOf(0, 1)); err == nil {
		t.Error("a claim that was never granted")
	}
}

// never is NEVER of the model.
func (w world) never() bool {
	return w.canGo() && w.vaEpoch == 0 && !w.attached && !w.heldBy() && !w.waits[0]
}

// TestDisownWhatWasNeverGranted: a DPU that was never granted an epoch for an attachment has to
// clear up after the last that there was; nothing is on record where there was none.
func TestDisownWhatWasNeverGranted(t *testing.T) {
	for name, tc := range map[string]struct {
		claim   claimState
		refused bool
		want    int64
	}{
		"another holds it":            {state(granted, 2, 1, [2]int{}), false, 2},
		"free":                        {state(free, 2, none, [2]int{}), false, 2},
		"a higher epoch is on record": {state(free, 2, none, [2]int{3, 0}), false, 3},
		"no epoch was ever":           {state(free, 0, none, [2]int{}), false, 0},
		"its DPU holds it":            {state(granted, 2, 0, [2]int{}), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := world{here: true, deleting: true, dpuFin: true, claimFin: true}.attachment()
			a.Name, a.Spec.NodeName = names[0], dpus[0]
			after, err := Disown(tc.claim.claim(), a)
			if (err != nil) != tc.refused {
				t.Fatalf("error %v", err)
			}
			if err == nil && after.Status.RevokedEpoch(dpus[0]) != tc.want {
				t.Errorf("on record is %+v", after.Status)
			}
		})
	}
}

// TestOverWithoutAClaim: while nothing is on record of the DPU, its finalizers stay.
func TestOverWithoutAClaim(t *testing.T) {
	for _, claim := range []*moorv1alpha1.WriterClaim{nil, {}} {
		if OverWithoutDPU(overOf(0, 1), claim) {
			t.Errorf("claim %+v", claim)
		}
	}
}

// TestLeftBySilent: what a person is told of an attachment that goes, and whose DPU is silent.
func TestLeftBySilent(t *testing.T) {
	mine := world{here: true, deleting: true, dpuFin: true, claimFin: true, vaEpoch: 1}
	shared := world{here: true, deleting: true, dpuFin: true}
	for name, tc := range map[string]struct {
		of    world
		claim *moorv1alpha1.WriterClaim
		more  []string
		want  string
	}{
		"it holds the right to write":         {mine, state(granted, 1, 0, [2]int{}).claim(), nil, "operatorReceipt"},
		"that is being taken from it":         {mine, state(fencing, 1, 0, [2]int{}).claim(), nil, ""},
		"another holds it":                    {mine, state(granted, 2, 1, [2]int{}).claim(), nil, ""},
		"there is no claim":                   {mine, nil, nil, ""},
		"of several writers":                  {shared, nil, nil, `finalizers":[]}}`},
		"of several writers, with the vendor": {shared, nil, []string{"a/b", "c/d"}, `finalizers":["a/b","c/d"]}}`},
		"of several writers, and it let go":   {world{here: true, deleting: true}, nil, []string{"a/b"}, ""},
		"of several writers, and it stays":    {world{here: true, dpuFin: true}, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := tc.of.attachment()
			a.Namespace, a.Finalizers = "moor", append(a.Finalizers, tc.more...)
			got := LeftBySilent(a, tc.claim)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q", got)
			}
			if got != "" && !strings.Contains(got, "DPU "+dpus[0]+" is silent") {
				t.Errorf("it does not say which DPU: %q", got)
			}
		})
	}
}

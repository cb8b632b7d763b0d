package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// attachment is one of a volume with a single writer to dpu-1, and claim the claim
// of that volume.
func attachment(change func(*storagev1alpha1.VolumeAttachment)) *storagev1alpha1.VolumeAttachment {
	out := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{storagev1alpha1.FinalizerWriterClaim}}}
	out.Spec.NodeName, out.Spec.Epoch, out.Spec.Source.VolumeRef = "dpu-1", 3, &storagev1alpha1.ObjectRef{Name: "v"}
	out.Status.StorageAttached = true
	change(out)
	return out
}

func claim(phase moorv1alpha1.ClaimPhase, holder string, epoch int64) *moorv1alpha1.WriterClaim {
	return &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: holder, Attachment: "a", Epoch: epoch}}
}

func held(a *storagev1alpha1.VolumeAttachment) {
	a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
}

func attached(a *storagev1alpha1.VolumeAttachment) {
	held(a)
	a.Status.DPU = shown(a)
}

func TestAnswer(t *testing.T) {
	granted := claim(moorv1alpha1.ClaimGranted, "dpu-1", 3)
	for _, c := range []struct {
		name          string
		a             func(*storagev1alpha1.VolumeAttachment)
		claim         *moorv1alpha1.WriterClaim
		hold, release bool
		shown         bool
		retired       int64
	}{
		{name: "the vendor has not attached", a: func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageAttached = false }, claim: granted},
		{name: "no claim", a: func(*storagev1alpha1.VolumeAttachment) {}, hold: true},
		{name: "granted to another", a: held, claim: claim(moorv1alpha1.ClaimGranted, "dpu-2", 3)},
		{name: "granted under another epoch", a: held, claim: claim(moorv1alpha1.ClaimGranted, "dpu-1", 4)},
		{name: "granted", a: func(*storagev1alpha1.VolumeAttachment) {}, claim: granted, hold: true, shown: true},
		{name: "shown", a: attached, claim: granted, shown: true},
		{name: "fenced", a: attached, claim: claim(moorv1alpha1.ClaimFencing, "dpu-1", 3), retired: 3},
		{name: "being deleted", a: func(a *storagev1alpha1.VolumeAttachment) {
			attached(a)
			a.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, claim: granted, release: true, retired: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := attachment(c.a)
			got := answerTo(a, c.claim)
			if got.hold != c.hold || got.release != c.release || got.status.Attached != c.shown || got.status.RetiredEpoch != c.retired {
				t.Errorf("got %+v", got)
			}
			if c.shown && got.status.Epoch != a.Spec.Epoch {
				t.Errorf("shown under epoch %d", got.status.Epoch)
			}
		})
	}
}

// TestLetGo: a DPU has nothing to do with what it has let go of, and with nothing else.
func TestLetGo(t *testing.T) {
	going := func(a *storagev1alpha1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	for name, c := range map[string]struct {
		a    func(*storagev1alpha1.VolumeAttachment)
		want bool
	}{
		"not yet held":                  {func(*storagev1alpha1.VolumeAttachment) {}, false},
		"going, and held":               {func(a *storagev1alpha1.VolumeAttachment) { held(a); going(a) }, false},
		"going, and said to be shown":   {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true; going(a) }, false},
		"going, and neither of the two": {going, true},
	} {
		if got := letGo(attachment(c.a)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestAnswersOnce: what was answered is not written again.
func TestAnswersOnce(t *testing.T) {
	granted := claim(moorv1alpha1.ClaimGranted, "dpu-1", 3)
	a := attachment(held)
	a.Status.DPU = answerTo(a, granted).status
	if diff := cmp.Diff(a.Status.DPU, answerTo(a, granted).status); diff != "" {
		t.Error(diff)
	}
}

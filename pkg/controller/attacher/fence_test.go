package attacher

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// holding is a VolumeAttachment under an epoch, whose device can be opened under epochs.
func holding(epoch int64) *storagev1alpha1.VolumeAttachment {
	a := ending()
	a.UID = "held"
	a.Status.StorageDetaching = false
	a.Spec.Epoch = epoch
	a.Status.DPU.OpenEpoch = ptr.To(int64(0))
	return a
}

// fencing is a fixture whose driver fences, with the request attached.
func fencing(t *testing.T, a *storagev1alpha1.VolumeAttachment) *fixture {
	t.Helper()
	w := newFixture(t, volume(), attachment(), a)
	w.r.Features.Fence = true
	w.mustReconcile()
	if len(w.driver.fenced) > 0 {
		t.Fatal("fenced before it was published: nothing says which volume it is")
	}
	return w
}

// fence is the word in the VolumeAttachment; nil if there is none.
func (w *fixture) fence() *storagev1alpha1.StorageFence {
	w.Helper()
	a := &storagev1alpha1.VolumeAttachment{}
	if !w.Has(a, "va") {
		w.Fatal("the VolumeAttachment is gone")
	}
	return a.Status.Fence
}

func (w *fixture) wantFenced(epochs ...int64) {
	w.Helper()
	var got []int64
	for _, r := range w.driver.fenced {
		if r.GetVolumeId() != "handle" {
			w.Errorf("volume %q was fenced", r.GetVolumeId())
		}
		got = append(got, r.GetEpoch())
	}
	if len(got) != len(epochs) {
		w.Fatalf("fenced below %v, want %v", got, epochs)
	}
	for i := range got {
		if got[i] != epochs[i] {
			w.Fatalf("fenced below %v, want %v", got, epochs)
		}
	}
}

// TestFencesWhatIsAskedFor: the storage is asked once for a grant, and once more when the
// right is taken; the word has the attachment's UID, and is written only when the storage
// has answered.
func TestFencesWhatIsAskedFor(t *testing.T) {
	w := fencing(t, holding(4))
	w.driver.fence = []error{status.Error(codes.Unavailable, "no answer"), nil}
	if err := w.reconcile(); err == nil || w.fence() != nil {
		t.Fatalf("got %v, the word is %+v", err, w.fence())
	}
	w.mustReconcile()
	if f := w.fence(); f == nil || f.Epoch != 4 || f.AttachmentUID != types.UID("held") || !f.Time.Time.Equal(w.Clock.Now()) {
		t.Fatalf("the word is %+v", f)
	}
	w.mustReconcile()
	w.wantFenced(4, 4)
	kubetest.Change(w.Cluster, holding(4), func(a *storagev1alpha1.VolumeAttachment) { a.Spec.FenceEpoch = 5 })
	w.mustReconcile()
	w.mustReconcile()
	if f := w.fence(); f == nil || f.Epoch != 5 {
		t.Fatalf("the word is %+v", f)
	}
	w.wantFenced(4, 4, 5)
	w.wantCalls(1, 0)
}

// TestFencesWhatGoes: the right is being taken from an attachment that is deleted, also
// one whose request ends in the same moment; what fails holds up no detach.
func TestFencesWhatGoes(t *testing.T) {
	a := holding(4)
	a.Spec.FenceEpoch = 5
	w := fencing(t, a)
	w.Remove(holding(4))
	w.driver.fence = []error{status.Error(codes.Unavailable, "no answer")}
	if err := w.reconcile(); err == nil {
		t.Fatal("no error")
	}
	w.mustReconcile()
	if f := w.fence(); f == nil || f.Epoch != 5 {
		t.Fatalf("the word is %+v", f)
	}
	kubetest.Change(w.Cluster, holding(4), func(a *storagev1alpha1.VolumeAttachment) { a.Spec.FenceEpoch = 6 })
	w.Remove(w.get())
	w.driver.fence = []error{status.Error(codes.Unavailable, "no answer")}
	if err := w.reconcile(); err == nil || w.get() != nil {
		t.Fatalf("%v: the detach waited for the fence: %+v", err, w.get())
	}
	w.wantCalls(1, 1)
}

// TestFencesNothingElse: nothing is asked of a driver that cannot, for a device that is
// not opened under epochs, for one that is shown and not open under its epoch yet, for
// another DPU, for a replica, or twice; and nothing is done by what the cache shows.
func TestFencesNothingElse(t *testing.T) {
	for name, change := range map[string]func(*fixture, *storagev1alpha1.VolumeAttachment){
		"the driver cannot":       func(w *fixture, _ *storagev1alpha1.VolumeAttachment) { w.r.Features.Fence = false },
		"no epochs":               func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.OpenEpoch = nil },
		"shown without its epoch": func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true },
		"of another DPU":          func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Spec.NodeName = "dpu-2" },
		"a replica":               func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica },
		"no grant":                func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 0 },
		"it cannot be read for now": func(w *fixture, _ *storagev1alpha1.VolumeAttachment) {
			w.r.DPU.Live = unreadable{w.r.DPU.Live, errors.New("no route")}
		},
		"there is a word": func(_ *fixture, a *storagev1alpha1.VolumeAttachment) {
			a.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: a.UID, Epoch: 4}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := holding(4)
			w := newFixture(t, volume(), attachment())
			w.r.Features.Fence = true
			w.mustReconcile()
			change(w, a)
			w.Add(a)
			_ = w.reconcile()
			w.wantFenced()
		})
	}
}

// TestWakesForAFence: an attachment wakes its request when it asks for a word, and only
// then.
func TestWakesForAFence(t *testing.T) {
	if got := toFence(t.Context(), holding(4)); len(got) != 1 || got[0].NamespacedName != client.ObjectKeyFromObject(attachment()) {
		t.Errorf("wakes %v", got)
	}
	said := holding(4)
	said.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: said.UID, Epoch: 4}
	if got := toFence(t.Context(), said); len(got) != 0 {
		t.Errorf("wakes %v though the word is there", got)
	}
}

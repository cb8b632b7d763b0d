package attacher

import (
	"context"
	"errors"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// ending is the VolumeAttachment of the request: snap-controller has noticed that it
// ends, and its claim may be held.
func ending() *storagev1alpha1.VolumeAttachment {
	return &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kubetest.DPUNamespace, Name: "va", UID: "ending",
			Finalizers: []string{storagev1alpha1.FinalizerWriterClaim, storagev1alpha1.FinalizerDPUAttachment},
		},
		Spec:   storagev1alpha1.VolumeAttachmentSpec{NodeName: node},
		Status: storagev1alpha1.VolumeAttachmentStatus{StorageDetaching: true},
	}
}

// end adds the VolumeAttachment, and deletes it.
func (w *fixture) end(a *storagev1alpha1.VolumeAttachment) {
	w.Helper()
	w.Add(a)
	w.Remove(a)
}

// word is what the attacher has written into the VolumeAttachment.
func (w *fixture) word() *storagev1alpha1.StorageRevocation {
	w.Helper()
	a := &storagev1alpha1.VolumeAttachment{}
	if !w.Has(a, "va") {
		w.Fatal("the VolumeAttachment is gone")
	}
	return a.Status.Revocation
}

// TestSaysThatItRevoked, of which attachment, before it lets go.
func TestSaysThatItRevoked(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.end(ending())
	w.mustReconcile()
	if got := w.word(); got != nil {
		t.Fatalf("revoked while attached: %+v", got)
	}
	w.Remove(w.get())
	w.AfterWrite(func(_ string, o client.Object) {
		sv, ok := o.(*storagev1alpha1.SVVolumeAttachment)
		if ok && !slices.Contains(sv.Finalizers, finalizer) && w.word() == nil {
			t.Error("let go before the word was written")
		}
	})
	w.mustReconcile()
	got := w.word()
	if got == nil || got.AttachmentUID != "ending" || got.NodeID != node || !got.Time.Time.Equal(w.Clock.Now()) || w.get() != nil {
		t.Fatalf("got %+v, request %+v", got, w.get())
	}
	w.wantCalls(1, 1)
}

// TestSaysNothingMore: only what it knows, and only where a claim may wait for it.
func TestSaysNothingMore(t *testing.T) {
	for name, change := range map[string]func(*fixture, *storagev1alpha1.VolumeAttachment){
		"the attachment stays":            nil,
		"it may be asked to attach again": func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = false },
		"of another node":                 func(_ *fixture, a *storagev1alpha1.VolumeAttachment) { a.Spec.NodeName = "dpu-2" },
		"no claim is held": func(_ *fixture, a *storagev1alpha1.VolumeAttachment) {
			a.Finalizers = []string{storagev1alpha1.FinalizerDPUAttachment}
		},
		"the driver revokes nothing": func(w *fixture, _ *storagev1alpha1.VolumeAttachment) { w.r.Features.Publish = false },
	} {
		t.Run(name, func(t *testing.T) {
			sv, a := attachment(), ending()
			sv.Finalizers = []string{finalizer}
			w := newFixture(t, volume(), sv)
			if change == nil {
				w.Add(a)
			} else {
				change(w, a)
				w.end(a)
			}
			w.Remove(w.get())
			w.mustReconcile()
			if got := w.word(); got != nil || w.get() != nil {
				t.Fatalf("got %+v, request %+v", got, w.get())
			}
		})
	}
}

// TestHoldsUntilItHasSaid: the request stays until the word is written, and none is
// written while the storage may not have revoked.
func TestHoldsUntilItHasSaid(t *testing.T) {
	sv := attachment()
	sv.Finalizers = []string{finalizer}
	w := newFixture(t, volume(), sv)
	w.end(ending())
	w.Remove(w.get())
	lost := errors.New("no route")
	live := w.r.DPU.Live
	w.r.DPU.Live = unreadable{live, lost}
	if err := w.reconcile(); !errors.Is(err, lost) || w.get() == nil || w.word() != nil {
		t.Fatalf("got %v, request %+v", err, w.get())
	}
	w.r.DPU.Live = live
	w.LoseWrite(1, false)
	if err := w.reconcile(); !errors.Is(err, kubetest.ErrLost) || w.get() == nil || w.word() != nil {
		t.Fatalf("got %v, request %+v", err, w.get())
	}
	w.mustReconcile()
	if w.word() == nil || w.get() != nil {
		t.Fatalf("got %+v, request %+v", w.word(), w.get())
	}
}

// unreadable fails to read VolumeAttachments.
type unreadable struct {
	client.Reader
	err error
}

func (u unreadable) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*storagev1alpha1.VolumeAttachment); ok {
		return u.err
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

// TestAnswerAboutAnotherObject: the attacher stood still between the driver's answer and its write, and the
// attachment was made anew by the name: what the driver said is not of that one.
func TestAnswerAboutAnotherObject(t *testing.T) {
	w := newFixture(t, attachment(), volume())
	old, _ := kubetest.Read(w.Cluster, attachment())
	w.Remove(attachment())
	anew := attachment()
	anew.UID = "u2"
	w.Add(anew)
	kubetest.Change(w.Cluster, attachment(), func(a *storagev1alpha1.SVVolumeAttachment) { a.Labels = map[string]string{"a": "b"} }) // an API server never gives a version twice
	_, err := w.r.writeStatus(t.Context(), old, func(s *storagev1.VolumeAttachmentStatus) { s.Attached = true })
	if now, _ := kubetest.Read(w.Cluster, attachment()); !apierrors.IsConflict(err) || now.UID != "u2" || now.Status.Attached {
		t.Errorf("%v; it is %+v", err, now.Status)
	}
}

package attacher

import (
	"strings"
	"testing"

	"github.com/moor-storage/moor/internal/kube/kubetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPublishErrors: what is left to undo after each kind of error of the first
// call.
func TestPublishErrors(t *testing.T) {
	cases := map[codes.Code]bool{ // code: must be undone at deletion
		codes.InvalidArgument:    false,
		codes.NotFound:           false,
		codes.AlreadyExists:      false,
		codes.FailedPrecondition: false,
		codes.OutOfRange:         false,
		codes.Unimplemented:      false,
		codes.Canceled:           true,
		codes.DeadlineExceeded:   true,
		codes.Unavailable:        true,
		codes.Aborted:            true,
		codes.ResourceExhausted:  true,
		codes.Internal:           true,
		codes.Unknown:            true,
	}
	for code, undo := range cases {
		t.Run(code.String(), func(t *testing.T) {
			w := newFixture(t, volume(), attachment())
			w.driver.publish = []error{status.Error(code, "because")}
			if err := w.reconcile(); err == nil {
				t.Fatal("the error was swallowed: nothing would try again")
			}
			sv := w.get()
			if held := len(sv.Finalizers) == 1; held != undo {
				t.Fatalf("finalizers %v, must be undone: %t", sv.Finalizers, undo)
			}
			e := sv.Status.AttachError
			if e == nil || !strings.Contains(e.Message, "because") || !e.Time.Time.Equal(kubetest.Begin) || sv.Status.Attached {
				t.Fatalf("status %+v", sv.Status)
			}
			w.Remove(sv)
			w.mustReconcile()
			w.wantCalls(1, map[bool]int{true: 1}[undo])
			if w.get() != nil {
				t.Fatal("the object is still there")
			}
		})
	}
}

func TestPublishErrorThenSuccess(t *testing.T) {
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			w := newFixture(t, volume(), attachment())
			w.driver.publish = []error{status.Error(code, "x"), status.Error(code, "x")}
			for range 2 {
				if err := w.reconcile(); err == nil {
					t.Fatal("no error")
				}
			}
			if w.status != 1 {
				t.Fatalf("the same words were written %d times", w.status)
			}
			w.mustReconcile()
			sv := w.get()
			if !sv.Status.Attached || sv.Status.AttachError != nil || len(sv.Finalizers) != 1 {
				t.Fatalf("status %+v, finalizers %v", sv.Status, sv.Finalizers)
			}
		})
	}
}

// TestRefusalAfterUncertainty: a refusal does not undo an earlier call whose
// outcome is unknown.
func TestRefusalAfterUncertainty(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.driver.publish = []error{status.Error(codes.DeadlineExceeded, "slow"), status.Error(codes.FailedPrecondition, "no")}
	for range 2 {
		if err := w.reconcile(); err == nil {
			t.Fatal("no error")
		}
	}
	w.Remove(w.get())
	w.mustReconcile()
	w.wantCalls(2, 1)
}

func TestUnpublishErrors(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.mustReconcile()
	w.Remove(w.get())
	w.driver.unpublish = []error{
		status.Error(codes.Internal, "boom"), status.Error(codes.Internal, "boom"), status.Error(codes.NotFound, "what volume?"),
	}
	for _, want := range []string{"boom", "boom", "what volume?"} {
		if err := w.reconcile(); err == nil {
			t.Fatal("no error")
		}
		sv := w.get()
		if sv == nil || sv.Status.DetachError == nil || !strings.Contains(sv.Status.DetachError.Message, want) {
			t.Fatalf("the object after a failed unpublish: %+v", sv)
		}
	}
	if w.status != 3 { // attached, boom, what volume
		t.Fatalf("%d status writes, want 3", w.status)
	}
	w.mustReconcile()
	if w.get() != nil {
		t.Fatal("the object is still there")
	}
}

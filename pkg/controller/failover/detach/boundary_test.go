package detach

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestFreeAnswers: a claim that is freed is returned as it was written; one that the receipt is
// not about stays, and nothing is written.
func TestFreeAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		epoch int64
		want  error
	}{"its own": {4, nil}, "of an earlier epoch": {3, writer.ErrTransition}} {
		s := newFixture(t)
		was := s.claim()
		receipt := moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", AttachmentUID: was.Status.AttachmentUID, Epoch: tc.epoch}
		got, err := Free(t.Context(), s.r.DPU.Client, was, receipt, kubetest.Begin)
		if !errors.Is(err, tc.want) || (got == nil) != (err != nil) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err == nil && (got.Status.Phase != moorv1alpha1.ClaimFree || got.ResourceVersion != s.claim().ResourceVersion) {
			t.Errorf("%s: it is returned as %+v, and is %+v", name, got.Status, s.claim().Status)
		}
		if err != nil && s.Writes() != 0 {
			t.Errorf("%s: %d writes", name, s.Writes())
		}
	}
}

// TestTheFailoverComesFirst: for 30 s from its deletion the claim of an attachment that is being
// fenced is left to the failover, and freed then if that does not.
func TestTheFailoverComesFirst(t *testing.T) {
	s := newOwned(t)
	s.failover(metav1.ConditionTrue)
	s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Phase = moorv1alpha1.ClaimFencing })
	gone, _ := kubetest.Read(s.DPU, s.attachment())
	s.Clock.SetTime(gone.DeletionTimestamp.Add(30*time.Second - time.Nanosecond))
	s.quiet("the failover frees the claim")
	s.Step(time.Nanosecond)
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree {
		t.Errorf("the claim is %+v", c)
	}
}

// TestTheVendorHasItsWholeMoment: to the last instant, whether the caches tell of it or, as of a
// DPU that is silent, the API server.
func TestTheVendorHasItsWholeMoment(t *testing.T) {
	for name, silent := range map[string]bool{"heard": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Spec.Epoch, a.Status.DPU = 4, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
			})
			s.DPU.Remove(s.attachment())
			gone, _ := kubetest.Read(s.DPU, s.attachment())
			if silent {
				s.Clock.SetTime(gone.DeletionTimestamp.Add(-90 * time.Second))
				s.r.Heartbeats = nodehealth.New(s.Clock, 0, 0)
				s.beats(30, true)
				s.beats(60, false)
			}
			s.Clock.SetTime(gone.DeletionTimestamp.Add(writer.VendorGrace - time.Nanosecond))
			if !silent {
				s.quiet("the vendor has an instant")
			}
			if got := s.again(); got != time.Nanosecond {
				t.Errorf("again after %s", got)
			}
			s.held("the vendor has an instant")
			s.Step(time.Nanosecond)
			s.mustPass()
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree {
				t.Errorf("the claim is %+v", c)
			}
		})
	}
}

// TestNothingToDo: of an attachment about which there is nothing to do, nothing is read live, and
// it is looked at again only if silence may end what it waits for.
func TestNothingToDo(t *testing.T) {
	heartbeats := func(s fixture, heard bool) {
		s.r.Heartbeats = nodehealth.New(s.Clock, 0, 0)
		s.beats(30, true)
		s.beats(30, heard)
	}
	for name, tc := range map[string]struct {
		begin func(*testing.T) fixture
		play  func(fixture)
		again time.Duration
	}{
		"it is in use":                         {newFixture, func(s fixture) { heartbeats(s, true) }, 0},
		"in use, and its DPU is mute":          {newFixture, func(s fixture) { heartbeats(s, false) }, 0},
		"its DPU did not let go, and is heard": {newLeft, func(fixture) {}, 10 * time.Second},
		"it goes, and its DPU takes its time": {newFixture, func(s fixture) {
			s.DPU.Remove(s.attachment())
			gone, _ := kubetest.Read(s.DPU, s.attachment())
			s.Clock.SetTime(gone.DeletionTimestamp.Add(time.Minute))
		}, 0},
		"its DPU gave back what it had before": {newFixture, func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Spec.Epoch, a.Status.DPU = 4, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
			})
			s.mustPass()
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree {
				s.t.Fatalf("the claim is %+v", c)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.begin(t)
			tc.play(s)
			s.quiet(name)
			if got := s.again(); got != tc.again {
				t.Errorf("again after %s, want %s", got, tc.again)
			}
		})
	}
}

// TestUnreadIsNotIdle: that there is nothing to do is known only of what the caches have told.
func TestUnreadIsNotIdle(t *testing.T) {
	s := newFixture(t)
	s.r.DPU.Client = failingClient{s.r.DPU.Client, &reads{fails: 1}}
	if _, idle, err := s.r.idle(t.Context(), attachment(true, true, true)); idle || !errors.Is(err, errRead) {
		t.Errorf("idle: %t, %v", idle, err)
	}
}

// TestNothingIsKeptWithoutFailovers: where there is no host cluster to ask, no attachment is kept,
// nor looked at again for that.
func TestNothingIsKeptWithoutFailovers(t *testing.T) {
	s := newOwned(t)
	s.r.Host.Client, s.r.Host.Live = nil, nil
	s.grant(func(c *moorv1alpha1.WriterClaimStatus) {
		*c = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
	})
	going, _ := kubetest.Read(s.DPU, s.attachment())
	if again, idle, err := s.r.idle(t.Context(), going); err != nil || idle || !again.IsZero() {
		t.Errorf("idle: %t, %v, again after %s", idle, err, again.RequeueAfter)
	}
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("the attachment stays")
	}
}

// TestSilentAndNotOver: a DPU that is silent, and has not retired its epoch, is waited for: what
// it says, and what becomes of its claim, start a pass. Nothing is asked of the host cluster.
func TestSilentAndNotOver(t *testing.T) {
	for name, play := range map[string]func(fixture){
		"it shows the volume": func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
				a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: true}
			})
		},
		"there is no claim": func(s fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
			s.DPU.Remove(s.claim())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeft(t)
			s.beats(30, false)
			play(s)
			s.waits(name)
			before := s.LiveReads()
			if got := s.again(); got != 0 {
				t.Errorf("again after %s", got)
			}
			if n := s.LiveReads() - before; n != 2 {
				t.Errorf("%d objects read live, want claim and attachment", n)
			}
		})
	}
}

// TestNoOwnerIsAskedFor: an attachment that names no owner, or one without a namespace, has none
// that could want it. One whose owner is gone, and that has no UID of it, is not wanted either.
func TestNoOwnerIsAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		owner string
		uid   bool
		reads int
	}{
		"none":                {"", true, 2},
		"without a namespace": {kubetest.HostNamespace, true, 2},
		"gone":                {kubetest.HostNamespace + "/" + owner, true, 3},
		"gone, without a UID": {kubetest.HostNamespace + "/" + owner, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeft(t)
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: tc.owner}
				if !tc.uid {
					a.Labels = nil
				}
			})
			s.beats(30, false)
			before := s.LiveReads()
			s.mustPass()
			if n := s.LiveReads() - before; n != tc.reads {
				t.Errorf("%d objects read live, want %d", n, tc.reads)
			}
			s.left(name)
		})
	}
}

// TestWhatConcernsNothingByNow: the cache shows an attachment that goes, and the API server one
// that no claim and no DPU holds any more: it is left alone.
func TestWhatConcernsNothingByNow(t *testing.T) {
	s := newFixture(t)
	s.edit(released)
	s.DPU.Remove(s.attachment())
	was, _ := kubetest.Read(s.DPU, s.attachment())
	s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = []string{"vendor"} })
	s.CacheShows(was)
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimGranted || s.Writes() != 0 {
		t.Errorf("the claim is %+v after %d writes", c, s.Writes())
	}
}

// beforeRead lets something happen before the attachment is read for the n-th time.
type beforeRead struct {
	client.Reader
	n       *int
	happens func()
}

func (b beforeRead) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*storagev1alpha1.VolumeAttachment); is {
		if *b.n--; *b.n == 0 {
			b.happens()
		}
	}
	return b.Reader.Get(ctx, key, o, opts...)
}

// disturbed has another write to the attachment right after its claim is free.
func (s fixture) disturbed() {
	done := false
	s.AfterWrite(func(_ string, o client.Object) {
		if _, is := o.(*moorv1alpha1.WriterClaim); is && !done {
			done = true
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true })
		}
	})
}

// TestGoneAfterAConflict: another has written to the attachment, which is gone by the time that it
// is read again: nothing is written to it any more.
func TestGoneAfterAConflict(t *testing.T) {
	s := newFixture(t)
	s.edit(released)
	s.DPU.Remove(s.attachment())
	s.disturbed()
	n := 2
	s.r.DPU.Live = beforeRead{s.r.DPU.Live, &n, func() {
		s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil })
	}}
	s.mustPass()
	if n != 0 || s.Writes() != 2 {
		t.Errorf("read %d times more, %d writes, want that to the claim and the one that failed", n, s.Writes())
	}
}

// TestLostAfterAConflict: nor is it lost if the second removal of the hold fails: it is told, and
// the next pass ends it.
func TestLostAfterAConflict(t *testing.T) {
	s := newFixture(t)
	s.edit(released)
	s.DPU.Remove(s.attachment())
	s.disturbed()
	s.LoseWrite(3, false)
	if err := s.pass(); !errors.Is(err, kubetest.ErrLost) {
		t.Errorf("got %v", err)
	}
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("the attachment is held")
	}
}

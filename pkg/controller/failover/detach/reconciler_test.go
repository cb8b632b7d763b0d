package detach

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/writer"
)

type fixture struct {
	*kubetest.Clusters
	r *Reconciler
	t *testing.T
}

// newFixture makes an attachment that DPU "dpu-a" shows under epoch 4, and its claim.
func newFixture(t *testing.T) fixture {
	c := kubetest.New(t)
	a := attachment(false, true, true)
	c.DPU.Add(a, kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4))
	return fixture{Clusters: c, t: t, r: &Reconciler{DPU: c.DPU.Cluster, Clock: c.Clock}}
}

func (s fixture) attachment() *storagev1alpha1.VolumeAttachment {
	return kubetest.VolumeAttachment("a-vol", "vol", "dpu-a")
}

func (s fixture) claim() *moorv1alpha1.WriterClaim {
	s.t.Helper()
	c, found := kubetest.Read(s.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vol")})
	if !found {
		s.t.Fatal("the claim is gone")
	}
	return c
}

func (s fixture) pass() error {
	_, err := s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: "a-vol"}})
	return err
}

func (s fixture) mustPass() {
	s.t.Helper()
	if err := s.pass(); err != nil {
		s.t.Fatal(err)
	}
}

// held checks that nothing was freed.
func (s fixture) held(when string) {
	s.t.Helper()
	if c := s.claim(); c.Status.Phase != moorv1alpha1.ClaimGranted || c.Status.Holder != "dpu-a" || c.Status.Epoch != 4 || len(c.Status.Receipts) != 0 {
		s.t.Errorf("%s: the claim is %+v", when, c.Status)
	}
	if _, found := kubetest.Read(s.DPU, s.attachment()); !found {
		s.t.Errorf("%s: the attachment is gone", when)
	}
}

func withdraw(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = false }

func released(a *storagev1alpha1.VolumeAttachment) {
	withdraw(a)
	a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
}

func TestFreesInOrder(t *testing.T) {
	s := newFixture(t)
	s.mustPass()
	s.held("in use")
	kubetest.Change(s.DPU, s.attachment(), withdraw)
	s.mustPass()
	s.held("withdrawn, not being deleted")
	s.DPU.Remove(s.attachment())
	s.mustPass()
	s.held("being deleted, the node driver has not let go")
	if s.Writes() != 0 {
		t.Errorf("wrote %d times while waiting", s.Writes())
	}
	kubetest.Change(s.DPU, s.attachment(), released)
	s.mustPass()
	c := s.claim().Status
	if c.Phase != moorv1alpha1.ClaimFree || c.Holder != "" || c.Attachment != "" || c.Epoch != 4 {
		t.Errorf("the claim is %+v, want it free under epoch 4", c)
	}
	if len(c.Receipts) != 1 || c.Receipts[0].Kind != moorv1alpha1.ReceiptDPU || c.Receipts[0].Epoch != 4 || !c.Receipts[0].Time.Time.Equal(kubetest.Begin) {
		t.Errorf("receipts %+v", c.Receipts)
	}
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("the attachment is still there")
	}
	s.mustPass()
}

// TestDeadVendorHoldsNothingUp: the claim is freed and let go of though the
// vendor's plugin keeps the node driver from letting go; the attachment stays for
// that. It is given a moment first.
func TestDeadVendorHoldsNothingUp(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 4 })
	s.DPU.Remove(s.attachment())
	gone, _ := kubetest.Read(s.DPU, s.attachment())
	s.Clock.SetTime(gone.DeletionTimestamp.Time)
	retire := func(epoch int64) {
		kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
			withdraw(a)
			a.Status.DPU.RetiredEpoch = epoch
		})
	}
	retire(3)
	s.Clock.SetTime(gone.DeletionTimestamp.Add(time.Hour))
	s.mustPass()
	s.held("an earlier epoch is retired")
	retire(4)
	s.Clock.SetTime(gone.DeletionTimestamp.Add(writer.VendorGrace / 2))
	s.mustPass()
	s.held("the vendor has a moment")
	s.Clock.SetTime(gone.DeletionTimestamp.Add(writer.VendorGrace))
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || len(c.Receipts) != 1 || c.Receipts[0].Epoch != 4 {
		t.Errorf("the claim is %+v", c)
	}
	a, found := kubetest.Read(s.DPU, s.attachment())
	if !found || !slices.Equal(a.Finalizers, []string{storagev1alpha1.FinalizerDPUAttachment}) {
		t.Errorf("found %v, finalizers %v: the node driver's alone has to be there", found, a.Finalizers)
	}
	before := s.Writes()
	s.mustPass()
	if n := s.Writes() - before; n != 0 {
		t.Errorf("%d more writes", n)
	}
}

// TestStrippedFinalizer: a finalizer taken away by force is no receipt while
// the device is shown.
func TestStrippedFinalizer(t *testing.T) {
	s := newFixture(t)
	s.DPU.Remove(s.attachment())
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	})
	for range 3 {
		s.mustPass()
		s.held("finalizer stripped, device shown")
	}
	if s.Writes() != 0 {
		t.Errorf("wrote %d times", s.Writes())
	}
}

// TestOldCache: what the cache shows decides nothing.
func TestOldCache(t *testing.T) {
	s := newFixture(t)
	s.DPU.Remove(s.attachment())
	a := attachment(true, false, false)
	s.CacheShows(a)
	s.mustPass()
	s.held("the cache alone says released")
}

// TestRaceForClaim: a change of the claim between read and write wins.
func TestRaceForClaim(t *testing.T) {
	s := newFixture(t)
	s.DPU.Remove(s.attachment())
	kubetest.Change(s.DPU, s.attachment(), released)
	stale := s.claim()
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing })
	receipt := moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", AttachmentUID: stale.Status.AttachmentUID, Epoch: 4}
	if _, err := Free(t.Context(), s.r.DPU.Client, stale, receipt, kubetest.Begin); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFencing {
		t.Errorf("the claim is %+v", c)
	}
}

// TestCrash loses each write in turn, with and without effect; repeats end in
// the same place.
func TestCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		for k := 1; ; k++ {
			s := newFixture(t)
			s.DPU.Remove(s.attachment())
			kubetest.Change(s.DPU, s.attachment(), released)
			s.LoseWrite(k, late)
			err := s.pass()
			if err == nil {
				if k < 3 {
					t.Fatalf("only %d writes: the test loses none", k-1)
				}
				break
			}
			if !errors.Is(err, kubetest.ErrLost) {
				t.Fatal(err)
			}
			s.mustPass()
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || c.Epoch != 4 || len(c.Receipts) != 1 {
				t.Errorf("write %d lost (late %v): the claim is %+v", k, late, c)
			}
			if _, found := kubetest.Read(s.DPU, s.attachment()); found {
				t.Errorf("write %d lost (late %v): the attachment is still there", k, late)
			}
		}
	}
}

// TestOthersClaim: an attachment that never had the right leaves the claim
// alone when it goes.
func TestOthersClaim(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Attachment, c.Status.Holder = "b-vol", "dpu-b" })
	s.DPU.Remove(s.attachment())
	kubetest.Change(s.DPU, s.attachment(), released)
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-b" || len(c.Receipts) != 0 {
		t.Errorf("the claim is %+v", c)
	}
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("the attachment is still there")
	}
}

func TestKeepsEightReceipts(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		for e := range int64(8) {
			c.Status.Receipts = append(c.Status.Receipts, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "x", Epoch: e - 10})
		}
	})
	s.DPU.Remove(s.attachment())
	kubetest.Change(s.DPU, s.attachment(), released)
	s.mustPass()
	got := s.claim().Status.Receipts
	if len(got) != 8 || got[8-1].Epoch != 4 || got[0].Epoch != -9 {
		t.Errorf("receipts %+v, want the last %d", got, 8)
	}
}

func TestNoVolumeRef(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Source.VolumeRef = nil; released(a) })
	s.DPU.Remove(s.attachment())
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("an attachment of no volume is kept")
	}
}

func attachment(deleting, finalizer, attached bool) *storagev1alpha1.VolumeAttachment {
	a := kubetest.VolumeAttachment("a-vol", "vol", "dpu-a")
	a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	if deleting {
		now := metav1.NewTime(time.Unix(1e9, 0))
		a.DeletionTimestamp = &now
	}
	if finalizer {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	}
	a.Status.DPU.Attached = attached
	return a
}

// TestRebornFreesNothing: an attachment that was made in the place of the one that holds
// the claim goes, and the claim stays.
func TestRebornFreesNothing(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.attachment(), released)
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "earlier" })
	s.DPU.Remove(s.attachment())
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimGranted || len(c.Receipts) != 0 {
		t.Errorf("the claim is %+v", c)
	}
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("an attachment that nothing was granted to is held")
	}
}

// TestUnboundNeedsTheRetiredEpoch: of a claim that does not say which object holds it, what
// the attachment has not is no receipt; the epoch that its DPU has retired is.
func TestUnboundNeedsTheRetiredEpoch(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "" })
	kubetest.Change(s.DPU, s.attachment(), released)
	s.DPU.Remove(s.attachment())
	s.mustPass()
	s.held("blank")
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch, a.Status.DPU.RetiredEpoch = 4, 4 })
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || len(c.Receipts) != 1 {
		t.Errorf("the claim is %+v", c)
	}
}

// TestRecordsWhatALostClaimWaitsFor: an attachment that goes is let go once it is on record
// that its DPU has cleared up, and not before.
func TestRecordsWhatALostClaimWaitsFor(t *testing.T) {
	s := newFixture(t)
	a, _ := kubetest.Read(s.DPU, s.attachment())
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: "dpu-a", Epoch: 4, Lost: []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: a.UID, Epoch: 4}}}
	})
	kubetest.Change(s.DPU, s.attachment(), released)
	s.DPU.Remove(s.attachment())
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimLost {
		t.Errorf("without a receipt the claim is %+v", c)
	}
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.ClearedEpoch = 4 })
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || c.Epoch != 4 {
		t.Errorf("the claim is %+v", c)
	}
	if _, found := kubetest.Read(s.DPU, s.attachment()); found {
		t.Error("the attachment is held")
	}
}

// afterClaim lets something happen once after a WriterClaim was read.
type afterClaim struct {
	client.Reader
	happens func()
}

func (a *afterClaim) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := a.Reader.Get(ctx, key, o, opts...)
	if _, claim := o.(*moorv1alpha1.WriterClaim); claim && a.happens != nil {
		happens := a.happens
		a.happens = nil
		happens()
	}
	return err
}

// TestAnotherCameMeanwhile: between the reading of the claim, which is free, and that of the
// attachment, another has come in its place, was granted the claim, and goes. It is not let go
// by what the claim said before: then nothing could end the right to write.
func TestAnotherCameMeanwhile(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.attachment(), released)
	s.DPU.Remove(s.attachment())
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
	})
	was, _ := kubetest.Read(s.DPU, s.attachment())
	s.r.DPU.Live = &afterClaim{Reader: s.DPU.Live, happens: func() {
		kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil })
		another := attachment(false, false, false)
		another.UID = "another"
		s.DPU.Add(another)
		kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
			c.Status.Phase, c.Status.Holder, c.Status.Attachment, c.Status.AttachmentUID, c.Status.Epoch = moorv1alpha1.ClaimGranted, "dpu-a", "a-vol", "another", 5
		})
		s.DPU.Remove(another)
	}}
	s.CacheShows(was)
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, s.attachment()); !found {
		t.Error("the other attachment was let go, and the claim is held for it")
	}
}

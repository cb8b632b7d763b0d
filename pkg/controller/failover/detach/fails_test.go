package detach

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

var errRead = errors.New("the API server does not answer")

// reads fails the read of this number, of the four readers together.
type reads struct{ n, fails int }

func (r *reads) next() error {
	if r.n++; r.n == r.fails {
		return errRead
	}
	return nil
}

type failingReader struct {
	client.Reader
	*reads
}

func (f failingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Reader.Get(ctx, key, o, opts...)
}

type failingClient struct {
	client.Client
	*reads
}

func (f failingClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return failingReader{f.Client, f.reads}.Get(ctx, key, o, opts...)
}

// TestEachReadFails: whichever read fails, the pass fails by it, and nothing is let go by what
// was not read. The next pass ends what is due.
func TestEachReadFails(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(*testing.T) fixture
		ends  func(fixture) bool
		least int
	}{
		"in order": {func(t *testing.T) fixture {
			s := newFixture(t)
			s.r.Host = s.Host.Cluster
			host := kubetest.DPUStorageNode("a")
			s.Host.Add(host, kubetest.DPUVolumeAttachment("vol", "a"))
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				released(a)
				a.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: kubetest.HostNamespace + "/a-vol"}
			})
			s.DPU.Remove(s.attachment())
			return s
		}, func(s fixture) bool {
			_, found := kubetest.Read(s.DPU, s.attachment())
			return !found && s.claim().Status.Phase == moorv1alpha1.ClaimFree
		}, 6},
		"a surrender": {func(t *testing.T) fixture {
			s := newFixture(t)
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Status.DPU, a.Spec.Epoch = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}, 4
			})
			return s
		}, func(s fixture) bool { return s.claim().Status.Phase == moorv1alpha1.ClaimFree }, 4},
		"in order, and another writes": {func(t *testing.T) fixture {
			s := newFixture(t)
			s.edit(released)
			s.DPU.Remove(s.attachment())
			s.disturbed()
			return s
		}, func(s fixture) bool {
			_, found := kubetest.Read(s.DPU, s.attachment())
			return !found && s.claim().Status.Phase == moorv1alpha1.ClaimFree
		}, 5},
		"after another's receipt": {func(t *testing.T) fixture {
			s := newOwned(t)
			s.failover(metav1.ConditionFalse)
			s.grant(func(c *moorv1alpha1.WriterClaimStatus) {
				*c = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
			})
			return s
		}, func(s fixture) bool {
			_, found := kubetest.Read(s.DPU, s.attachment())
			return !found
		}, 8},
		"without the DPU": {func(t *testing.T) fixture {
			s := newLeft(t)
			s.own("second")
			s.beats(30, false)
			return s
		}, func(s fixture) bool { return s.claim().Status.RevokedEpoch("dpu-a") == 4 }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			for fails := 1; ; fails++ {
				s := c.begin(t)
				was := *s.r
				r := &reads{fails: fails}
				s.r.DPU.Client, s.r.DPU.Live = failingClient{was.DPU.Client, r}, failingReader{was.DPU.Live, r}
				if was.Host.Live != nil {
					s.r.Host.Client, s.r.Host.Live = failingClient{was.Host.Client, r}, failingReader{was.Host.Live, r}
				}
				err := s.pass()
				if r.n < fails {
					if err != nil || fails <= c.least || !c.ends(s) {
						t.Errorf("%d reads, want %d at least; at their end: %v", r.n, c.least, err)
					}
					return
				}
				if _, found := kubetest.Read(s.DPU, s.attachment()); !errors.Is(err, errRead) || !found {
					t.Errorf("read %d: %v, and the attachment is there: %t", fails, err, found)
				}
				*s.r = was
				if s.mustPass(); !c.ends(s) {
					t.Errorf("read %d: the next pass does not end it", fails)
				}
			}
		})
	}
}

// TestSurrenderLost: a write that fails is told.
func TestSurrenderLost(t *testing.T) {
	s := newFixture(t)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU, a.Spec.Epoch = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}, 4
	})
	s.LoseWrite(1, false)
	if err := s.pass(); !errors.Is(err, kubetest.ErrLost) {
		t.Errorf("got %v", err)
	}
}

// TestWhatStartsAPass: of owners those that go, and of claims those that change.
func TestWhatStartsAPass(t *testing.T) {
	stays, goes := kubetest.DPUVolumeAttachment("vol", "a"), kubetest.DPUVolumeAttachment("vol", "a")
	now := ctrl.Request{}
	now.Namespace, now.Name = kubetest.DPUNamespace, "a-vol"
	deleted := kubetest.Begin
	goes.DeletionTimestamp = &metav1.Time{Time: deleted}
	if Going.Create(event.CreateEvent{Object: goes}) || Going.Generic(event.GenericEvent{Object: goes}) ||
		Going.Update(event.UpdateEvent{ObjectOld: stays, ObjectNew: stays}) || !Going.Update(event.UpdateEvent{ObjectOld: stays, ObjectNew: goes}) || !Going.Delete(event.DeleteEvent{Object: goes}) {
		t.Error("an owner starts a pass that stays, or one that goes starts none")
	}
	claim := kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4)
	if claimChanged.Create(event.TypedCreateEvent[*moorv1alpha1.WriterClaim]{Object: claim}) {
		t.Error("a claim that the cache has just read starts a pass")
	}
	if claim.Status = nil; OfClaim(t.Context(), claim) != nil {
		t.Error("a claim without a status starts a pass")
	}
	r := &Reconciler{TargetNamespace: kubetest.DPUNamespace}
	if got := r.ofOwner(t.Context(), stays); len(got) != 1 || got[0] != now {
		t.Errorf("an owner starts passes of %v", got)
	}
}

// TestLooksAgain: when an attachment is looked at again of which nothing may tell.
func TestLooksAgain(t *testing.T) {
	s := newLeft(t)
	again := func(when string, want time.Duration) {
		t.Helper()
		got, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.attachment())})
		if err != nil || got.RequeueAfter != want {
			t.Errorf("%s: again after %s, %v, want %s", when, got.RequeueAfter, err, want)
		}
	}
	again("its DPU may fall silent", 10*time.Second)
	s.r.Heartbeats = nil
	again("nothing tells of silence", 0)
}

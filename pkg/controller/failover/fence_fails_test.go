package failover

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/writer"
)

var errNoAnswer = errors.New("the API server does not answer")

// fails is a client whose read of this number fails, of all that share it.
type fails struct{ n, at int }

func (f *fails) of(c client.Reader) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if f.n++; f.n == f.at {
				return errNoAnswer
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if f.n++; f.n == f.at {
				return errNoAnswer
			}
			return c.List(ctx, l, opts...)
		},
	})
}

// withReads is the fencer of a fixture whose read of this number fails.
func (s *fixture) withReads(at int) (fencer, *fails) {
	f, out := &fails{at: at}, s.f.fencer
	out.dpu = kube.Cluster{Client: f.of(s.DPU.Client), Live: f.of(s.DPU.Live)}
	out.targets.dpu = out.dpu
	out.leases = &leases{dpu: out.dpu, clock: s.Clock}
	out.power = powerproof.New(powerproof.Options{
		Host: kube.Cluster{Client: f.of(s.Host.Client)}, Namespace: kubetest.HostNamespace, Clock: s.Clock, Silent: s.f.o.Observer.DPUSilentSince,
	})
	return out, f
}

// fencePass is the pass and target of a fence, as the API server has claim and attachment.
func (s *fixture) fencePass() (*pass, *target) {
	p, t := fencePass()
	t.claim = s.claim()
	t.mirror, _ = kubetest.Read(s.DPU, t.mirror)
	return p, t
}

// revocable is a fence that waits for the word of the storage, which is asked.
func (s *fixture) revocable() {
	s.vouch()
	s.noticed()
	s.DPU.Remove(kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = fencing })
	s.claims["vol"], s.fenced["vol"] = *s.claim().Status, s.Clock.Now()
}

// gone lets the host cluster let go of the attachment.
func (s *fixture) gone(t *target) {
	now := metav1.NewTime(s.Clock.Now())
	t.attachment.DeletionTimestamp = &now
}

// fences are fences at some point, with the reads that one pass makes there.
var fences = map[string]struct {
	begin func(*fixture) (*pass, *target)
	reads int
	frees bool
}{
	"it begins, and waits": {func(s *fixture) (*pass, *target) { return s.fencePass() }, 4, false},
	"it begins by an old cache": {func(s *fixture) (*pass, *target) {
		p, t := s.fencePass()
		t.cached = true
		kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Labels = map[string]string{"another": "writes"} })
		return p, t
	}, 6, false},
	"the storage is asked": {func(s *fixture) (*pass, *target) {
		s.revocable()
		return s.fencePass()
	}, 4, false},
	"the storage has answered": {func(s *fixture) (*pass, *target) {
		s.revocable()
		sv, _ := s.sv()
		s.DPU.Remove(sv)
		s.revoked()
		return s.fencePass()
	}, 3, true},
	"another DPU, which gives a lease": {func(s *fixture) (*pass, *target) {
		s.revocable()
		p, t := s.fencePass()
		p.node.Spec.DPUName = "dpu-c"
		return p, t
	}, 4, false},
	"it waits for what the caches lack": {func(s *fixture) (*pass, *target) {
		s.revocable()
		p, t := s.fencePass()
		t.missing = "the DPU is waited for"
		return p, t
	}, 1, false},
}

// TestEachReadOfAFenceFails: whichever read fails, the fence fails by it and frees nothing.
func TestEachReadOfAFenceFails(t *testing.T) {
	for name, tc := range fences {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				s := newFixture(t)
				p, target := tc.begin(s)
				f, reads := s.withReads(at)
				err := f.fence(t.Context(), p, target)
				if reads.n < at {
					if errors.Is(err, errNoAnswer) || reads.n != tc.reads || (s.claim().Status.Phase == freed) != tc.frees {
						t.Errorf("%v after %d reads, want %d; the claim is %s", err, reads.n, tc.reads, s.claim().Status.Phase)
					}
					return
				}
				if !errors.Is(err, errNoAnswer) || s.claim().Status.Phase == freed {
					t.Errorf("read %d: %v, and the claim is %s", at, err, s.claim().Status.Phase)
				}
			}
		})
	}
}

// TestEachWriteOfAFenceFails: each write that is lost is told: to the claim, to the
// attachment or to what asks the storage.
func TestEachWriteOfAFenceFails(t *testing.T) {
	for name, tc := range map[string]struct {
		begin  func(*fixture) (*pass, *target)
		writes int
	}{
		"claim, epoch and attachment": {func(s *fixture) (*pass, *target) {
			s.takesEpochs()
			return s.fencePass()
		}, 3},
		"the storage": {func(s *fixture) (*pass, *target) { s.revocable(); return s.fencePass() }, 1},
		"claim and holds": {func(s *fixture) (*pass, *target) {
			s.revocable()
			sv, _ := s.sv()
			s.DPU.Remove(sv)
			s.revoked()
			p, t := s.fencePass()
			s.gone(t)
			return p, t
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				s := newFixture(t)
				p, target := tc.begin(s)
				before := s.Writes()
				s.LoseWrite(n, false)
				err := s.f.fencer.fence(t.Context(), p, target)
				if did := s.Writes() - before; did < n {
					if did != tc.writes || errors.Is(err, kubetest.ErrLost) {
						t.Errorf("%v after %d writes, want %d", err, did, tc.writes)
					}
					return
				}
				if !errors.Is(err, kubetest.ErrLost) {
					t.Errorf("write %d: %v", n, err)
				}
			}
		})
	}
}

// TestHoldsGoWithTheReceipt: by the storage's word the claim is free, its event is told, and
// the holds of the DPU go in the same pass, if the host cluster lets go.
func TestHoldsGoWithTheReceipt(t *testing.T) {
	s := newFixture(t)
	s.revocable()
	sv, _ := s.sv()
	s.DPU.Remove(sv)
	s.revoked()
	p, target := s.fencePass()
	s.gone(target)
	if err := s.f.fencer.fence(t.Context(), p, target); err != nil {
		t.Fatal(err)
	}
	s.wantPhase(freed)
	m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	if events := s.Events(); !slices.Equal(m.Finalizers, []string{storagev1alpha1.FinalizerVolumeAttachment}) || len(events) != 1 || !strings.Contains(events[0], "epoch 4 of DPU dpu-a is over, receipt") {
		t.Errorf("finalizers %v, events %q", m.Finalizers, events)
	}
	if target.held() || s.f.fencer.progress.last() != s.Clock.Now() {
		t.Error("the pass does not know that it is free, or that the fence got further")
	}
}

// TestMachinesAreLeftAlone: where there is a receipt, no BMC is asked for: what is on record of
// them does not even matter.
func TestMachinesAreLeftAlone(t *testing.T) {
	s := newFixture(t)
	s.revocable()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	p, target := s.fencePass()
	receipt, err := s.f.fencer.prove(t.Context(), p, target, writer.Evidence{Attachment: target.mirror})
	f, reads := s.withReads(1)
	again, failure := f.prove(t.Context(), p, target, writer.Evidence{Attachment: target.mirror})
	if err != nil || failure != nil || receipt == nil || again == nil || receipt.Kind != moorv1alpha1.ReceiptDPU || reads.n != 0 {
		t.Errorf("%v, %v; %+v; %d reads", err, failure, receipt, reads.n)
	}
}

// TestNothingByACache: what a cache shows of a fence that waits frees nothing.
func TestNothingByACache(t *testing.T) {
	s := newFixture(t)
	s.revocable()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	p, target := s.fencePass()
	target.missing = "the DPU is waited for"
	err := s.f.fencer.fence(t.Context(), p, target)
	if outcome := kube.Settle(err, s.Clock.Now()); outcome.Err != nil || outcome.Message != target.missing {
		t.Errorf("%v, it waits for %q", outcome.Err, outcome.Message)
	}
	s.wantPhase(fencing)
}

// TestConflicts: a claim that a cache had is read once where it has changed; one that was read
// from the API server is left to the next pass. One that others free meanwhile is no failure.
func TestConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "writerclaims"}, "vol", errors.New("it has changed"))
	for name, cached := range map[string]bool{"cached": true, "read": false} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			p, target := s.fencePass()
			target.cached = cached
			f, writes := s.f.fencer, 0
			f.dpu.Client = interceptor.NewClient(s.DPU.Client.(client.WithWatch), interceptor.Funcs{
				SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
					writes++
					if writes > 5 {
						return errNoAnswer
					}
					return conflict
				},
			})
			want := 1
			if cached {
				want = 2
			}
			if err := f.fence(t.Context(), p, target); !apierrors.IsConflict(err) || writes != want {
				t.Errorf("%v after %d writes, want %d", err, writes, want)
			}
		})
	}
}

// TestFreedByAnother: another has freed the claim by the same word: the holds go. One that is
// held still is a failure, and so is all that is no conflict.
func TestFreedByAnother(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "writerclaims"}, "vol", errors.New("it has changed"))
	for name, tc := range map[string]struct {
		failure error
		frees   bool
		reads   int
	}{
		"freed":       {conflict, true, 2},
		"held":        {conflict, false, 2},
		"no conflict": {errNoAnswer, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				s := newFixture(t)
				s.revocable()
				p, target := s.fencePass()
				s.gone(target)
				if tc.frees {
					kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
						c.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4, Revoked: []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 4}}}
					})
				}
				f, reads := s.withReads(at)
				err := f.freedBefore(t.Context(), p, target, tc.failure)
				m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
				if reads.n >= at {
					if !errors.Is(err, errNoAnswer) || len(m.Finalizers) != 3 {
						t.Errorf("read %d: %v, finalizers %v", at, err, m.Finalizers)
					}
					continue
				}
				goes := tc.frees && tc.reads > 0
				if reads.n != tc.reads || goes != (err == nil) || !goes && !errors.Is(err, tc.failure) || goes != (len(m.Finalizers) == 1) {
					t.Errorf("%v after %d reads, finalizers %v", err, reads.n, m.Finalizers)
				}
				return
			}
		})
	}
}

// TestCause: the event says why the right to write is taken, and from which DPU.
func TestCause(t *testing.T) {
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		want string
	}{
		"dead": {together(), "host a is BothDead: no answer; the right to write is taken back from DPU dpu-a (epoch 4)"},
		"path": {pathLost, "host a: its path is lost; the right to write is taken back from DPU dpu-a (epoch 4)"},
	} {
		s := newFixture(t)
		p, target := s.fencePass()
		p.evidence = "no answer"
		tc.is(p, target)
		s.Step(time.Second)
		if err := s.f.fencer.beginFencing(t.Context(), p, target); err != nil {
			t.Fatal(err)
		}
		if events := s.Events(); len(events) != 1 || !strings.Contains(events[0], tc.want) || !strings.HasPrefix(events[0], corev1.EventTypeWarning) {
			t.Errorf("%s: events %q", name, events)
		}
		if !target.inFencing() || s.f.fencer.progress.last() != s.Clock.Now() {
			t.Errorf("%s: the pass does not know it", name)
		}
	}
}

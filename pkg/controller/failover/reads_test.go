package failover

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
)

// reads counts what is read from one reader: calls by kind, and objects that lists
// returned. A read that copies from the cache counts in copies too.
type reads struct {
	mu      sync.Mutex
	calls   map[string]int
	objects map[string]int
	copies  int
}

func (r *reads) add(kind string, objects int, shared *bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[kind]++
	r.objects[kind] += objects
	if shared == nil || !*shared {
		r.copies += objects
	}
}

// all is the number of calls.
func (r *reads) all() int {
	sum := 0
	for _, n := range r.calls {
		sum += n
	}
	return sum
}

// of counts what is read through a client.
func (r *reads) of(c client.Client) client.WithWatch {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, from client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			r.add(reflect.TypeOf(o).Elem().Name(), 1, (&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy)
			return from.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, from client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := from.List(ctx, l, opts...)
			r.add(reflect.TypeOf(l).Elem().Name(), meta.LenList(l), (&client.ListOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy)
			return err
		},
	})
}

// counted counts from now on what the reconciler reads: from both caches, and from
// both API servers.
func (s *fixture) counted() (cached, live *reads) {
	cached = &reads{calls: map[string]int{}, objects: map[string]int{}}
	live = &reads{calls: map[string]int{}, objects: map[string]int{}}
	s.change(func(o *Options) {
		o.Host = kube.Cluster{Client: cached.of(s.Host.Client), Live: live.of(s.Host.Direct)}
		o.DPU = kube.Cluster{Client: cached.of(s.DPU.Client), Live: live.of(s.DPU.Direct)}
	})
	return cached, live
}

// TestAHostThatIsWellCostsLittle: of what is attached to it only the claims are looked
// at, without copies, and nothing is read live or written.
func TestAHostThatIsWellCostsLittle(t *testing.T) {
	s := newFixture(t)
	s.addVolume("more", "a")
	cached, live := s.counted()
	before := s.Writes()
	s.mustPass()
	if live.all() != 0 || s.Writes() != before {
		t.Errorf("%v read live, %d writes", live.calls, s.Writes()-before)
	}
	if cached.calls["DPUVolume"] != 0 || cached.calls["VolumeAttachment"] != 0 {
		t.Errorf("of a host that is well, %v was read", cached.calls)
	}
	// The host, its Node, and what its DPU says, as a heartbeat and as a lease.
	if cached.copies != 4 {
		t.Errorf("%d objects of %v were copied, want 4", cached.copies, cached.calls)
	}
}

// TestAHostThatWaitsReadsNothing: a host that is held, and one that the budget refuses,
// ask the API servers for nothing while nothing of theirs was begun. What an operator
// vouches for is done by what the API server has.
func TestAHostThatWaitsReadsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(s *fixture)
		says string
	}{
		"held": {func(s *fixture) {
			s.live(30, "dpu-a", "b", "dpu-b")
			s.notReady("a")
		}, "HostCutOff"},
		"refused": {func(s *fixture) {
			s.seenDead("a")
			s.change(func(o *Options) { o.Budget = Budget{} })
		}, "the budget of 0 failovers a minute is spent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addVolume("more", "a")
			tc.play(s)
			_, live := s.counted()
			s.mustPass()
			s.wantSays("False/Held", tc.says)
			before := s.Writes()
			s.mustPass()
			if live.all() != 0 || s.Writes() != before {
				t.Errorf("%v read live, %d writes", live.calls, s.Writes()-before)
			}
			s.stripped()
			s.operator(4)
			s.mustPass()
			s.wantPhase(freed)
			if want := 2 * len(s.claims); live.calls["WriterClaim"]+live.calls["VolumeAttachment"] < want {
				t.Errorf("the right to write is taken by %v read live, want %d at least", live.calls, want)
			}
		})
	}
}

// TestFencesByWhatTheAPIServerHas: what was begun is gone on with by the claim as the
// API server has it, when the cache is older.
func TestFencesByWhatTheAPIServerHas(t *testing.T) {
	s := newFixture(t)
	s.CacheShows(s.claim())
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
}

// TestNothingBeginsUnread: while the API server of the DPU cluster does not answer, no
// failover begins, and none is counted: what is heard through it may be old.
func TestNothingBeginsUnread(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.change(func(o *Options) {
		o.DPU.Live = interceptor.NewClient(s.DPU.Direct, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("no answer")
			},
		})
	})
	before := s.Writes()
	if err := s.pass("a"); err == nil {
		t.Error("what could not be read is no error")
	}
	if state, _ := s.says(); state != "none" || s.Writes() != before {
		t.Errorf("Failover is %s, %d writes", state, s.Writes()-before)
	}
}

// TestAHostThatIsWellEndsWhatWasBegun: the right to write is taken to its end though
// nothing but the claim tells of it: of a host that is well, if it is being taken; of
// one that is not known yet, if an operator wants it.
func TestAHostThatIsWellEndsWhatWasBegun(t *testing.T) {
	s := newFixture(t)
	fenced := s.claim()
	kubetest.Change(s.DPU, fenced, func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing })
	s.claims["vol"] = *fenced.Status
	s.mustPass()
	s.retire()
	s.mustPass()
	s.wantPhase(freed)

	s = newFixture(t)
	s.restart()
	s.stripped()
	s.operator(4)
	s.mustPass()
	s.wantPhase(freed)
}

// TestFreedBefore: a claim that the orderly end of the attachment frees at the same moment
// is freed, and the pass goes on; one that has changed otherwise is a conflict still.
func TestFreedBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		first func(s *fixture, claim *moorv1alpha1.WriterClaim) error
		done  bool
	}{
		"freed": {func(s *fixture, claim *moorv1alpha1.WriterClaim) error {
			receipt := moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", AttachmentUID: claim.Status.AttachmentUID, Epoch: 4, Message: "released"}
			_, err := detach.Free(s.t.Context(), s.DPU.Client, claim, receipt, s.Clock.Now())
			return err
		}, true},
		"changed": {func(s *fixture, claim *moorv1alpha1.WriterClaim) error {
			claim.Labels = map[string]string{"by": "another"}
			return s.DPU.Direct.Update(s.t.Context(), claim)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.seenDead("a")
			s.mustPass()
			s.retire()
			begun := false
			s.change(func(o *Options) {
				o.DPU.Client = interceptor.NewClient(s.DPU.Client.(client.WithWatch), interceptor.Funcs{
					SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
						if _, ok := o.(*moorv1alpha1.WriterClaim); ok && !begun {
							begun = true
							if err := tc.first(s, s.claim()); err != nil {
								t.Error(err)
							}
						}
						return c.SubResource(sub).Update(ctx, o, opts...)
					},
				})
			})
			_, err := s.f.Reconcile(t.Context(), kube.RequestFor("", "a"))
			if !begun || (err == nil) != tc.done || err != nil && !apierrors.IsConflict(err) {
				t.Fatalf("the claim was written: %v; error %v", begun, err)
			}
			if s.tainted("a") != tc.done || s.hasPod("app") == tc.done {
				t.Errorf("released: %v, want %v", s.tainted("a"), tc.done)
			}
		})
	}
}

// TestReadsGrowWithTheVolumes: a DPU's word about one volume makes that one be read
// live, and its pod, not all of the host again.
func TestReadsGrowWithTheVolumes(t *testing.T) {
	const volumes = 20
	s := newFixture(t)
	for i := 1; i < volumes; i++ {
		s.addVolume(fmt.Sprintf("vol%d", i), "a")
		s.addPod(fmt.Sprintf("app%d", i), "a", fmt.Sprintf("vol%d", i))
	}
	_, live := s.counted()
	s.seenDead("a")
	s.mustPass()
	for name := range s.claims {
		kubetest.Change(s.DPU, kubetest.VolumeAttachment("a-"+name, name, "dpu-a"), func(m *storagev1alpha1.VolumeAttachment) {
			m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
		})
		s.mustPass() // what the DPU says
		s.mustPass() // that the claim is free
	}
	for name, c := range s.claims {
		if c.Phase != moorv1alpha1.ClaimFree {
			t.Errorf("volume %s is %s", name, c.Phase)
		}
	}
	var pods corev1.PodList
	if err := s.Host.Direct.List(t.Context(), &pods); err != nil || len(pods.Items) != 0 {
		t.Errorf("%d pods are left, %v", len(pods.Items), err)
	}
	// When the fence ends, of the first also before it begins.
	for kind, most := range map[string]int{"WriterClaim": volumes + 1, "VolumeAttachment": volumes + 1, "Pod": volumes} {
		if live.calls[kind] > most {
			t.Errorf("%d times a %s was read live, want %d at most", live.calls[kind], kind, most)
		}
	}
}

// TestBegunBehindTheCache: the fence of a host's volumes begins by what the caches show, but
// for the first. Nothing else comes of it, however old that is.
func TestBegunBehindTheCache(t *testing.T) {
	claimOf := func(s *fixture, phase moorv1alpha1.ClaimPhase) *moorv1alpha1.WriterClaim {
		c := kubetest.WriterClaim("vol1", "dpu-a", "a-vol1", 4)
		c, _ = kubetest.Read(s.DPU, c)
		if c.Status.Phase = phase; phase == moorv1alpha1.ClaimFree {
			c.Status.Holder, c.Status.Attachment = "", ""
		}
		return c
	}
	for name, tc := range map[string]struct {
		shows func(s *fixture)
		want  moorv1alpha1.ClaimPhase
	}{
		"current":                 {func(*fixture) {}, fencing},
		"free, and granted since": {func(s *fixture) { s.CacheShows(claimOf(s, freed)) }, fencing},
		"granted, and fenced since": {func(s *fixture) {
			old := claimOf(s, moorv1alpha1.ClaimGranted)
			kubetest.Change(s.DPU, old, func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = fencing })
			s.CacheShows(old)
		}, fencing},
		"retired, which it is not": {func(s *fixture) {
			m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol1", "vol1", "dpu-a"))
			m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
			s.CacheShows(m)
		}, fencing},
		"being deleted, and not released": {func(s *fixture) {
			m := kubetest.VolumeAttachment("a-vol1", "vol1", "dpu-a")
			s.DPU.Remove(m)
			m, _ = kubetest.Read(s.DPU, m)
			m.Finalizers, m.Status.DPU.Attached = []string{storagev1alpha1.FinalizerWriterClaim}, false
			s.CacheShows(m)
		}, fencing},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addVolume("vol1", "a")
			s.addPod("app1", "a", "vol1")
			s.seenDead("a")
			tc.shows(s)
			s.MustReconcile(s.f, "a")
			s.CacheIsCurrent()
			c, _ := kubetest.Read(s.DPU, kubetest.WriterClaim("vol1", "dpu-a", "a-vol1", 4))
			if c.Status.Phase != tc.want || !s.hasPod("app1") {
				t.Errorf("the claim is %s, want %s; its pod is there: %v", c.Status.Phase, tc.want, s.hasPod("app1"))
			}
			s.mustPass()
			for _, volume := range []string{"vol", "vol1"} {
				kubetest.Change(s.DPU, kubetest.VolumeAttachment("a-"+volume, volume, "dpu-a"), func(m *storagev1alpha1.VolumeAttachment) {
					m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
				})
			}
			s.mustPass()
			if s.hasPod("app1") {
				t.Error("its pod is still there when its volume is free")
			}
		})
	}
}

// TestAWatchThatHasStopped: what the cache does not show is found out all the same, by
// reading it live now and then.
func TestAWatchThatHasStopped(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.mustPass()
	s.wantPhase(fencing)
	before, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	s.retire()
	s.CacheShows(before)
	s.MustReconcile(s.f, "a")
	s.wantPhase(fencing)
	s.live(15, "dpu-a", "b", "dpu-b")
	s.MustReconcile(s.f, "a")
	s.wantPhase(freed)
}

// TestWhatIsWaitedForIsToldOnce: of each volume, though what the others wait for changes.
func TestWhatIsWaitedForIsToldOnce(t *testing.T) {
	s := newFixture(t)
	s.addVolume("more", "a")
	s.seenDead("a")
	s.mustPass()
	held := func() int { return strings.Count(s.Reasons(), storagev1alpha1.EventFailoverHeld) }
	if n := held(); n != 0 {
		t.Errorf("%d volumes are told of at once", n)
	}
	s.later()
	if n := held(); n != 2 {
		t.Fatalf("%d volumes are told of after the grace, want 2", n)
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if again := held(); again != 0 {
		t.Errorf("%d are told of again when one is free", again)
	}
}

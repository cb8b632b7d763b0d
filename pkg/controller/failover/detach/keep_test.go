package detach

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// newOwned is an attachment that its DPU has let go of in order. Its owner is wanted, and
// its host fails over.
func newOwned(t *testing.T) fixture {
	s := newFixture(t)
	s.r.Host, s.r.Recorder = s.Host.Cluster, s.Recorder
	o := kubetest.DPUVolumeAttachment("vol", "a")
	o.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
	s.Host.Add(kubetest.DPUStorageNode("a"), o, kubetest.DPUVolume("vol", corev1.ReadWriteOnce))
	s.failover(metav1.ConditionTrue)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		released(a)
		a.Spec.Epoch = 4
		a.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: kubetest.HostNamespace + "/" + owner}
	})
	s.DPU.Remove(s.attachment())
	return s
}

func (s fixture) failover(status metav1.ConditionStatus) {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) {
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: moorv1alpha1.ConditionFailover, Status: status, Reason: "Test"})
	})
}

// path is what the owner says of its path to the storage.
func (s fixture) path(healthy metav1.ConditionStatus) {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) {
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: storagev1alpha1.ConditionPathHealthy, Status: healthy, Reason: "Test"})
	})
}

// again is when a pass wants the next one.
func (s fixture) again() time.Duration {
	s.t.Helper()
	got, err := s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.attachment())})
	if err != nil {
		s.t.Fatal(err)
	}
	return got.RequeueAfter
}

// TestKeeps: the claim is freed by the receipt in each case. The attachment stays while a
// failover, or a lost path, ended it and its owner wants it still; else it goes.
func TestKeeps(t *testing.T) {
	for name, tc := range map[string]struct {
		play  func(s fixture)
		stays bool
		reads int // claim and attachment, and the owner and its host if they matter
	}{
		"the host fails over": {func(fixture) {}, true, 4},
		"the path is lost": {func(s fixture) {
			s.failover(metav1.ConditionFalse)
			s.path(metav1.ConditionFalse)
		}, true, 3},
		"the path is well": {func(s fixture) {
			s.failover(metav1.ConditionFalse)
			s.path(metav1.ConditionTrue)
		}, false, 4},
		"the failover is over": {func(s fixture) { s.failover(metav1.ConditionFalse) }, false, 4},
		"the host is gone":     {func(s fixture) { s.Host.Remove(kubetest.DPUStorageNode("a")) }, false, 4},
		"the owner goes":       {func(s fixture) { s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a")) }, false, 3},
		"the owner is gone": {func(s fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
			s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
		}, false, 3},
		"it has no owner": {func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Annotations = nil })
		}, false, 2},
		"there are no failovers": {func(s fixture) { s.r.Host.Client, s.r.Host.Live = nil, nil }, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOwned(t)
			tc.play(s)
			before, want := s.LiveReads(), time.Duration(0)
			if tc.stays {
				want = 5 * time.Second
			}
			if got := s.again(); got != want {
				t.Errorf("again after %s, want %s", got, want)
			}
			if n := s.LiveReads() - before; n != tc.reads {
				t.Errorf("%d objects read live, want %d", n, tc.reads)
			}
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || len(c.Receipts) != 1 {
				t.Errorf("the claim is %+v", c)
			}
			if _, found := kubetest.Read(s.DPU, s.attachment()); found != tc.stays {
				t.Errorf("the attachment is there: %t", found)
			}
			if !tc.stays {
				return
			}
			before = s.LiveReads()
			if got := s.again(); got != want || s.LiveReads() != before {
				t.Errorf("kept by what the caches know: again after %s, %d objects read live", got, s.LiveReads()-before)
			}
		})
	}
}

// TestFenceIsRecorded: a fence that ends in order is told by an event of its volume, which
// names epoch, DPU and receipt. The end of a right that was not being taken is none, and
// what stands in the way of an event holds nothing up.
func TestFenceIsRecorded(t *testing.T) {
	fenced := func(s fixture) {
		s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Phase = moorv1alpha1.ClaimFencing })
	}
	for name, tc := range map[string]struct {
		play func(s fixture)
		told bool
	}{
		"fenced":     {fenced, true},
		"not fenced": {func(fixture) {}, false},
		"no events":  {func(s fixture) { fenced(s); s.r.Recorder = nil }, false},
		"no host":    {func(s fixture) { fenced(s); s.r.Host.Client, s.r.Host.Live = nil, nil }, false},
		"no volume":  {func(s fixture) { fenced(s); s.Host.Remove(kubetest.DPUVolume("vol")) }, false},
		"an owner without a namespace": {func(s fixture) {
			fenced(s)
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment] = kubetest.HostNamespace
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOwned(t)
			gone, _ := kubetest.Read(s.DPU, s.attachment())
			s.Clock.SetTime(gone.DeletionTimestamp.Add(failoverFirst))
			tc.play(s)
			s.mustPass()
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree {
				t.Errorf("the claim is %+v", c)
			}
			events := s.Events()
			if told := len(events) == 1 && strings.Contains(events[0], storagev1alpha1.EventFailoverFenced) &&
				strings.Contains(events[0], "epoch 4 of DPU dpu-a is over, receipt DPU: DPU dpu-a withdrew the device"); told != tc.told || !told && len(events) > 0 {
				t.Errorf("events %q", events)
			}
		})
	}
}

// TestWhenALeftOneIsLookedAtAgain: what nothing may tell is looked for every ten seconds.
func TestWhenALeftOneIsLookedAtAgain(t *testing.T) {
	const look = 10 * time.Second
	for name, tc := range map[string]struct {
		play func(s fixture)
		want time.Duration
	}{
		"its owner wants it":   {func(s fixture) { s.own("first") }, look},
		"the DPU holds it":     {func(s fixture) { s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Holder = "dpu-a" }) }, look},
		"heard again":          {func(s fixture) { s.beats(10, true) }, look},
		"nothing is on record": {func(s fixture) { s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true }) }, 0},
		"it is let go":         {func(fixture) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeft(t)
			s.beats(30, false)
			tc.play(s)
			if got := s.again(); got != tc.want {
				t.Errorf("again after %s, want %s", got, tc.want)
			}
		})
	}
}

// TestLeftWhoseOwner: only an owner that stays, and that the attachment was made for, keeps
// an attachment whose DPU is silent.
func TestLeftWhoseOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(s fixture)
		left bool
	}{
		"made before owners were named by UID": {func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Labels = nil })
			s.own("second")
		}, false},
		"going": {func(s fixture) {
			o := kubetest.DPUVolumeAttachment("vol", "a")
			o.UID, o.Finalizers = "first", []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
			s.Host.Add(o)
			s.Host.Remove(o)
		}, true},
		"not named": {func(s fixture) {
			s.own("first")
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Annotations = nil })
		}, true},
		"no host to ask of": {func(s fixture) { s.own("first"); s.r.Host.Client, s.r.Host.Live = nil, nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeft(t)
			tc.play(s)
			s.beats(30, false)
			if !tc.left {
				s.waits(name)
				return
			}
			s.mustPass()
			s.left(name)
		})
	}
}

// TestHoldsStayWhileHeard: the cache says that the DPU let go, and the API server that it did
// not, and that it has to clear up: the holds stay while the DPU is heard.
func TestHoldsStayWhileHeard(t *testing.T) {
	s := newLeft(t)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
	})
	let, _ := kubetest.Read(s.DPU, s.attachment())
	let.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: true}
	})
	s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Revoked = []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 4}} })
	s.CacheShows(let)
	s.waits("heard")
	if got := s.again(); got != 10*time.Second {
		t.Errorf("again after %s", got)
	}
}

// TestVendorHasItsMomentIfSilent: also where the DPU is silent, the vendor's plugin has its
// moment after the receipt.
func TestVendorHasItsMomentIfSilent(t *testing.T) {
	for name, heartbeats := range map[string]bool{"silent": true, "heard": false} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Spec.Epoch, a.Status.DPU = 4, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
			})
			s.DPU.Remove(s.attachment())
			if heartbeats {
				s.r.Heartbeats = nodehealth.New(s.Clock, 0, 0)
				s.beats(5, true)
				s.beats(60, false)
			}
			gone, _ := kubetest.Read(s.DPU, s.attachment())
			s.Clock.SetTime(gone.DeletionTimestamp.Add(time.Second / 2))
			if got := s.again(); got != 3*time.Second/2 {
				t.Errorf("again after %s", got)
			}
			s.held("the vendor has a moment")
		})
	}
}

// TestRetiredWithoutAnEpochOfItsOwn: an attachment that was granted an epoch which was never
// written there frees the claim by what its DPU has retired, and stays until the vendor's
// plugin lets it go: once the claim is free, that word alone is none about this attachment.
func TestRetiredWithoutAnEpochOfItsOwn(t *testing.T) {
	s := newFixture(t)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	s.DPU.Remove(s.attachment())
	s.Step(time.Hour)
	gone, _ := kubetest.Read(s.DPU, s.attachment())
	s.Clock.SetTime(gone.DeletionTimestamp.Add(time.Hour))
	s.mustPass()
	a, found := kubetest.Read(s.DPU, s.attachment())
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || !found || !slices.Contains(a.Finalizers, storagev1alpha1.FinalizerWriterClaim) {
		t.Errorf("the claim is %+v, finalizers %v", c, a.Finalizers)
	}
}

// TestTheWordOfOneThatIsGone: an attachment that only the cache has frees nothing.
func TestTheWordOfOneThatIsGone(t *testing.T) {
	for name, play := range map[string]func(s fixture){
		"in order": func(s fixture) {
			s.edit(released)
			s.DPU.Remove(s.attachment())
		},
		"a surrender": func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) {
				a.Status.DPU, a.Spec.Epoch = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}, 4
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			play(s)
			was, _ := kubetest.Read(s.DPU, s.attachment())
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil })
			if was.DeletionTimestamp.IsZero() {
				s.DPU.Remove(s.attachment())
			}
			s.CacheShows(was)
			s.mustPass()
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimGranted || len(c.Receipts) != 0 || s.Writes() != 0 {
				t.Errorf("the claim is %+v after %d writes", c, s.Writes())
			}
		})
	}
}

// TestErrorsName: an error says of which volume, DPU and epoch the write has failed.
func TestErrorsName(t *testing.T) {
	lost := func(s fixture) {
		a, _ := kubetest.Read(s.DPU, s.attachment())
		s.grant(func(c *moorv1alpha1.WriterClaimStatus) {
			*c = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: "dpu-a", Epoch: 4, Lost: []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: a.UID, Epoch: 4}}}
		})
		s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.ClearedEpoch = 4 })
	}
	for name, tc := range map[string]struct {
		play func(s fixture)
		want string
	}{
		"free":    {func(fixture) {}, "free the right to write volume vol, held by DPU dpu-a under epoch 4"},
		"recover": {lost, "record that DPU dpu-a has withdrawn volume vol"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOwned(t)
			tc.play(s)
			s.LoseWrite(1, false)
			if err := s.pass(); !errors.Is(err, kubetest.ErrLost) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			s.failover(metav1.ConditionFalse)
			if s.mustPass(); s.claim().Status.Phase != moorv1alpha1.ClaimFree {
				t.Errorf("the claim is %+v", s.claim().Status)
			}
		})
	}
}

// TestSeveralThatAreLost: each attachment of which the DPU may still write is looked at.
func TestSeveralThatAreLost(t *testing.T) {
	claim := kubetest.WriterClaim("vol", "", "", 4)
	claim.Status.Attachment, claim.Status.Lost = "", []moorv1alpha1.LostHolder{{Attachment: "b-vol"}, {Attachment: "c-vol"}}
	var names []string
	for _, r := range OfClaim(t.Context(), claim) {
		names = append(names, r.Namespace+"/"+r.Name)
	}
	if want := []string{kubetest.DPUNamespace + "/b-vol", kubetest.DPUNamespace + "/c-vol"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

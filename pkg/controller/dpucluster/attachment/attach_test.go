package attachment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestTheVendorIsAsked(t *testing.T) {
	for name, required := range map[string]*bool{"says nothing": nil, "says yes": ptr.To(true)} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			m.Add(kubetest.CSIDriver("a", required))
			m.settle()
			sv, found := m.asked()
			want := storagev1.VolumeAttachmentSpec{NodeName: "d1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}}
			if diff := cmp.Diff(want, sv.Spec); !found || diff != "" {
				t.Errorf("found %v: %s", found, diff)
			}
			x := m.x()
			if x.Status.StorageAttached || x.Spec.VolumeAttachmentRef == nil || x.Spec.VolumeAttachmentRef.Name != "x" {
				t.Errorf("attached %v, ref %+v", x.Status.StorageAttached, x.Spec.VolumeAttachmentRef)
			}
			if diff := cmp.Diff([]string{storagev1alpha1.FinalizerVolumeAttachment}, x.Finalizers); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheVendorsAnswerIsPassedOn(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	m.settle()
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) {
		s.Attached, s.AttachmentMetadata = true, map[string]string{"lun": "7"}
	})
	m.settle()
	x := m.x()
	if diff := cmp.Diff(map[string]string{"tier": "gold", "lun": "7"}, x.Spec.Parameters); diff != "" {
		t.Error(diff)
	}
	if !x.Status.StorageAttached || x.Status.StorageMessage != "" || x.Status.StorageDetaching {
		t.Errorf("%+v", x.Status)
	}
	if n := m.WritesOn(x); n > 3 {
		t.Errorf("%d writes on the VolumeAttachment for a normal attach", n)
	}
}

func TestAVendorThatNeedNotAttachIsNotAsked(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", no))
	m.settle()
	x := m.x()
	_, asked := m.asked()
	if asked || !x.Status.StorageAttached || x.Spec.VolumeAttachmentRef != nil || x.Spec.Parameters["tier"] != "gold" {
		t.Errorf("asked %v, %+v, %+v", asked, x.Spec, x.Status)
	}
	if n := m.WritesOn(x); n > 2 {
		t.Errorf("%d writes", n)
	}
}

// TestAVendorThatRevokesIsAsked: one that attaches nothing, and revokes, is asked by an SVVolumeAttachment, as its deletion asks for the
// revocation. A volume that was let in before stays as it is, and is taken back by nothing but its end.
func TestAVendorThatRevokesIsAsked(t *testing.T) {
	revokes := func(m *fixture, is string) {
		kubetest.Change(m.Cluster, kubetest.CSIDriver("a", no), func(d *storagev1.CSIDriver) { d.Annotations = map[string]string{storagev1alpha1.AnnotationRevokes: is} })
	}
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", no))
	revokes(m, "true")
	m.settle()
	if _, asked := m.asked(); !asked || m.x().Status.StorageAttached || m.x().Spec.VolumeAttachmentRef == nil {
		t.Errorf("asked %v: %+v", asked, m.x())
	}
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.Attached = true })
	for _, is := range []string{"true", "false", "true"} {
		revokes(m, is)
		m.settle()
		if !m.x().Status.StorageAttached || m.x().Spec.Parameters["tier"] != "gold" {
			t.Errorf("revokes %s: %+v", is, m.x().Status)
		}
	}
	m.delete()
	m.settle()
	if sv, asked := m.asked(); !asked || sv.DeletionTimestamp.IsZero() || !m.x().Status.StorageDetaching {
		t.Errorf("asked %v: %+v", asked, m.x().Status)
	}

	before := newFixture(t)
	before.Add(kubetest.CSIDriver("a", no))
	before.settle()
	revokes(before, "true")
	before.settle()
	if _, asked := before.asked(); asked || !before.x().Status.StorageAttached || before.x().Spec.VolumeAttachmentRef != nil {
		t.Errorf("let in before: asked %v, %+v", asked, before.x())
	}
}

func TestWordsForWhatIsWaitedFor(t *testing.T) {
	volume := func(change func(*storagev1alpha1.Volume)) func(*fixture) {
		return func(m *fixture) {
			kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")}, change)
		}
	}
	asked := func(then func(*fixture)) func(*fixture) {
		return func(m *fixture) {
			m.Add(kubetest.CSIDriver("a", nil))
			m.settle()
			then(m)
		}
	}
	for _, tc := range []struct {
		name  string
		world func(*fixture)
		words string
	}{
		{"no volume named", func(m *fixture) {
			m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Source.VolumeRef = nil })
		}, "names no Volume"},
		{"no DPU named", func(m *fixture) {
			m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Spec.NodeName = "" })
		}, "names no DPU"},
		{"unknown volume", func(m *fixture) { m.Remove(kubetest.Volume("v", "gold")) }, "Volume v, which does not exist"},
		{"volume not ready", volume(func(v *storagev1alpha1.Volume) {
			v.Status = storagev1alpha1.VolumeStatus{State: storagev1alpha1.VolumeInProgress, Message: "no policy"}
		}), "Volume v to become Available: no policy"},
		{"volume not ready, no reason given, too long", func(m *fixture) {
			volume(func(v *storagev1alpha1.Volume) { v.Status = storagev1alpha1.VolumeStatus{} })(m)
			m.Clock.SetTime(m.Clock.Now().Add(kube.StatusGrace))
		}, "waiting for Volume v to become Available"},
		{"volume going", func(m *fixture) {
			volume(func(v *storagev1alpha1.Volume) { v.Finalizers = []string{storagev1alpha1.FinalizerVolume} })(m)
			m.Remove(kubetest.Volume("v", "gold"))
		}, "Volume v is being deleted"},
		{"no driver", func(*fixture) {}, "waiting for CSIDriver a.csi of StorageVendor a, which does not exist"},
		{"no claim", func(m *fixture) {
			m.Add(kubetest.CSIDriver("a", nil))
			m.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")})
		}, "PersistentVolumeClaim v-pvc is gone"},
		{"slow vendor", asked(func(m *fixture) {
			m.Clock.SetTime(m.Clock.Now().Add(kube.StatusGrace))
		}), "waiting for the vendor to attach PersistentVolume pv to DPU d1"},
		{"vendor refuses", asked(func(m *fixture) {
			m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.AttachError = &storagev1.VolumeError{Message: "no path"} })
		}), "could not attach PersistentVolume pv to DPU d1: no path"},
		{"earlier request still going", asked(func(m *fixture) {
			m.vendor(func(s *storagev1.VolumeAttachmentStatus) {
				s.Attached, s.DetachError = true, &storagev1.VolumeError{Message: "array offline"}
			})
			m.Remove(&storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("x")})
		}), "earlier SVVolumeAttachment x to go, then it is made anew: the last attempt failed: array offline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newFixture(t)
			tc.world(m)
			m.settle()
			m.wantMessage(tc.words)
			if m.x().Status.StorageAttached {
				t.Error("attached")
			}
		})
	}
}

func TestANormalAttachIsNotWorthAWord(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	result, err := m.try()
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > kube.StatusGrace {
		t.Errorf("%+v, %v", result, err)
	}
	if s := m.x().Status; s.StorageMessage != "" {
		t.Errorf("told at once: %q", s.StorageMessage)
	}
}

func TestAnotherPVIsAskedForAnew(t *testing.T) {
	m := newAttached(t)
	kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv2" })
	m.settle()
	sv, found := m.asked()
	if !found || sv.DeletionTimestamp == nil || m.x().Status.StorageAttached {
		t.Fatalf("found %v, going %v, attached %v", found, sv.DeletionTimestamp, m.x().Status.StorageAttached)
	}
	m.vendorDone()
	m.settle()
	if sv, found = m.asked(); !found || *sv.Spec.Source.PersistentVolumeName != "pv2" {
		t.Errorf("found %v: %+v", found, sv.Spec)
	}
}

func TestWhatADPUUsesIsNotAskedForAnew(t *testing.T) {
	m := newAttached(t)
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
		a.Spec.NodeName = "d2"
	})
	m.settle()
	if sv, found := m.asked(); !found || sv.DeletionTimestamp != nil {
		t.Errorf("found %v, going %v", found, sv.DeletionTimestamp)
	}
	m.wantMessage("a DPU still uses it")
}

// A DPU may be using the volume: what cannot be found out takes nothing back.
func TestAttachedStaysWhatIsUnknown(t *testing.T) {
	for name, loss := range map[string]func(*fixture){
		"driver gone": func(m *fixture) { m.Remove(kubetest.CSIDriver("a", nil)) },
		"volume gone": func(m *fixture) { m.Remove(kubetest.Volume("v", "gold")) },
		"claim gone":  func(m *fixture) { m.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newAttached(t)
			loss(m)
			m.settle()
			if _, found := m.asked(); !found || !m.x().Status.StorageAttached {
				t.Errorf("asked %v, attached %v", found, m.x().Status.StorageAttached)
			}
		})
	}
}

func TestTheVendorsWordTakesItBack(t *testing.T) {
	for name, world := range map[string]func(*fixture){
		"driver there": func(*fixture) {},
		"driver gone":  func(m *fixture) { m.Remove(kubetest.CSIDriver("a", nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newAttached(t)
			world(m)
			m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.Attached = false })
			m.settle()
			if m.x().Status.StorageAttached {
				t.Error("still attached")
			}
		})
	}
}

func TestOthersFieldsAreLeftAlone(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	m.settle()
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Spec.Epoch, a.Status.Message, a.Status.DPU.Attached = 3, "from the DPU", true
	})
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.Attached = true })
	m.settle()
	if x := m.x(); x.Spec.Epoch != 3 || x.Status.Message != "from the DPU" || !x.Status.DPU.Attached || !x.Status.StorageAttached {
		t.Errorf("%+v %+v", x.Spec, x.Status)
	}
}

func TestAttachedIsQuiet(t *testing.T) {
	m := newAttached(t)
	before := m.Writes()
	m.settle()
	if m.Writes() != before {
		t.Error("a pass over an attached volume writes")
	}
}

func TestAnErrorIsToldAndReturned(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	m.LoseWrite(2, false)
	if _, err := m.try(); err == nil || !strings.Contains(err.Error(), "create") {
		t.Errorf("error %v", err)
	}
	m.wantMessage("connection lost")
}

func TestARequestThatTheCacheDoesNotShowYetIsNoError(t *testing.T) {
	m := newAttached(t)
	sv, _ := m.asked()
	m.CacheHides(sv)
	if _, err := m.try(); err != nil || !m.x().Status.StorageAttached {
		t.Errorf("attached %v, %v", m.x().Status.StorageAttached, err)
	}
}

// TestTheVendorIsAskedOnce: a pass that comes before the cache shows what the one before
// made waits for it, and asks the API server for nothing; not for ever, and not once the
// cache has shown it.
func TestTheVendorIsAskedOnce(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	sv := &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("x")}
	m.CacheHides(sv)
	pass := func() ctrl.Result {
		t.Helper()
		result, err := m.try()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	pass()
	live := m.LiveReads()
	for range 3 {
		if got := pass(); got.RequeueAfter <= 0 || got.RequeueAfter > 10*time.Second {
			t.Errorf("the next pass comes after %s, want it within the time that the cache has", got.RequeueAfter)
		}
	}
	if got := m.WritesOn(sv); got != 1 || m.LiveReads() != live {
		t.Errorf("asked %d times, %d live reads more", got, m.LiveReads()-live)
	}
	m.Step(10 * time.Second)
	pass()
	if got := m.WritesOn(sv); got != 2 || m.LiveReads() == live {
		t.Errorf("asked %d times, %d live reads more: the cache is believed for ever", got, m.LiveReads()-live)
	}
	m.wantMessage("waiting for the vendor to attach")
	m.CacheIsCurrent()
	pass()
	m.Remove(sv)
	pass()
	if got := m.WritesOn(sv); got != 3 {
		t.Errorf("asked %d times: what the cache has shown and shows no more is gone, and made anew", got)
	}
}

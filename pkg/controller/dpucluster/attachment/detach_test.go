package attachment_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestDetachInOrder(t *testing.T) {
	m := newAttached(t)
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
		a.Status.DPU.Attached = true
	})
	m.delete()
	m.settle()
	if sv, found := m.asked(); !found || sv.DeletionTimestamp != nil {
		t.Fatal("the vendor detaches while the DPU uses the volume")
	}
	m.wantMessage("waiting for DPU d1 to withdraw")
	if !m.x().Status.StorageDetaching {
		t.Error("the deletion was seen, and the status does not say so")
	}
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers, a.Status.DPU.Attached = []string{storagev1alpha1.FinalizerVolumeAttachment}, false
	})
	m.settle()
	sv, found := m.asked()
	if !found || sv.DeletionTimestamp == nil || !m.exists() {
		t.Fatal("want the vendor asked to detach, and the attachment still there")
	}
	before := m.Writes()
	m.settle()
	if m.Writes() != before {
		t.Error("words for a wait that every attachment goes through")
	}
	// This deletion too is stamped by the machine's clock, which may have gone on by a second.
	m.Clock.SetTime(sv.DeletionTimestamp.Add(kube.StatusGrace))
	m.settle()
	m.wantMessage("waiting for the vendor to detach the volume from DPU d1")
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) {
		s.DetachError = &storagev1.VolumeError{Message: "array offline"}
	})
	m.settle()
	m.wantMessage("array offline")
	m.vendorDone()
	m.settle()
	if m.exists() {
		t.Errorf("still there: %+v", m.x())
	}
}

// TestTheVendorsGraceIsItsOwn: what the vendor takes is of the normal course from when it
// was asked, however long the DPU had taken before.
func TestTheVendorsGraceIsItsOwn(t *testing.T) {
	m := newAttached(t)
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	})
	m.delete()
	m.settle()
	m.Clock.SetTime(m.Clock.Now().Add(kube.StatusGrace))
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment}
	})
	before := m.Writes()
	if _, err := m.try(); err != nil {
		t.Fatal(err)
	}
	if n := m.Writes() - before; n != 1 {
		t.Errorf("%d writes, want the request to detach alone", n)
	}
	m.wantMessage("waiting for DPU d1 to withdraw")
}

// TestNoticedByThePassThatKnows: a pass whose cache does not have the deletion yet learns
// of it by the answer to a patch. It does not say that the deletion was seen: the pass
// after it may have the same cache, and would ask the vendor to attach.
func TestNoticedByThePassThatKnows(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	m.settle()
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.Attached = true })
	cached := m.x()
	m.delete()
	m.CacheShows(cached)
	before := m.Writes()
	if _, err := m.try(); err != nil || m.Writes() == before {
		t.Fatalf("nothing was written, this tests nothing: %v", err)
	}
	if m.x().Status.StorageDetaching {
		t.Error("a pass that attaches says that the vendor is not asked to attach any more")
	}
	m.CacheIsCurrent()
	m.settle()
	if !m.x().Status.StorageDetaching {
		t.Error("the deletion was seen, and the status does not say so")
	}
}

func TestDetachWithNothingToWaitFor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world func(*fixture)
	}{
		{"never seen", func(*fixture) {}},
		{"waits for the driver", func(m *fixture) { m.settle() }},
		{"vendor need not attach", func(m *fixture) {
			m.Add(kubetest.CSIDriver("a", no))
			m.settle()
		}},
		{"held, but the vendor was never asked", func(m *fixture) {
			m.Add(kubetest.CSIDriver("a", nil))
			m.LoseWrite(2, false)
			_, _ = m.try()
		}},
		{"volume and driver gone", func(m *fixture) {
			m.Add(kubetest.CSIDriver("a", no))
			m.settle()
			m.Remove(kubetest.CSIDriver("a", no), kubetest.Volume("v", "gold"))
		}},
		{"asked, and no vendor holds it", func(m *fixture) {
			m.Add(kubetest.CSIDriver("a", nil))
			m.settle()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newFixture(t)
			tc.world(m)
			m.delete()
			m.settle()
			if _, asked := m.asked(); asked || m.exists() {
				t.Errorf("attachment left %v, request left %v", m.exists(), asked)
			}
		})
	}
}

func TestTheWriterClaimsFinalizerStays(t *testing.T) {
	m := newAttached(t)
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
	})
	m.delete()
	m.settle()
	m.vendorDone()
	m.settle()
	if f := m.x().Finalizers; len(f) != 1 || f[0] != storagev1alpha1.FinalizerWriterClaim {
		t.Errorf("finalizers %v", f)
	}
	before := m.Writes()
	m.settle()
	if m.Writes() != before {
		t.Error("writes on an attachment that it holds no more")
	}
}

// A request made a moment ago, which the cache does not show, is not forgotten.
func TestDetachAsksTheServerForTheRequest(t *testing.T) {
	m := newAttached(t)
	m.delete()
	sv, _ := m.asked()
	m.CacheHides(sv)
	if _, err := m.try(); err != nil {
		t.Fatal(err)
	}
	if sv, found := m.asked(); !found || sv.DeletionTimestamp == nil || !m.exists() {
		t.Error("want the vendor asked to detach, and the attachment still there")
	}
}

func TestAnOldCacheIsNoError(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	old := m.x()
	m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Labels = map[string]string{"changed": "since"} })
	m.CacheShows(old)
	if _, err := m.try(); err != nil {
		t.Fatal(err)
	}
	if _, asked := m.asked(); asked || len(m.x().Finalizers) != 0 {
		t.Error("acted on an old version")
	}
	m.CacheIsCurrent()
	m.settle()
	if _, asked := m.asked(); !asked {
		t.Error("the vendor is not asked")
	}
}

// Every write of a whole life is lost once; a repeat has to bring the same end.
func TestALostWriteChangesNothing(t *testing.T) {
	for lost := 1; ; lost++ {
		m := newFixture(t)
		m.Add(kubetest.CSIDriver("a", nil))
		m.LoseWrite(lost, false)
		m.settle()
		m.vendor(func(s *storagev1.VolumeAttachmentStatus) {
			s.Attached, s.AttachmentMetadata = true, map[string]string{"lun": "7"}
		})
		m.settle()
		if x := m.x(); !x.Status.StorageAttached || x.Status.StorageMessage != "" || x.Spec.Parameters["lun"] != "7" {
			t.Fatalf("write %d lost: %+v %+v", lost, x.Spec, x.Status)
		}
		m.delete()
		m.settle()
		m.vendorDone()
		m.settle()
		if _, asked := m.asked(); asked || m.exists() {
			t.Fatalf("write %d lost: something is left", lost)
		}
		if m.Writes() < lost {
			if lost < 7 {
				t.Fatalf("only %d writes in a whole life: the test tests nothing", lost)
			}
			return
		}
	}
}

package dpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/patrol"
)

// journal is the file of the driver's journal.
func (m *machine) journal() string { return filepath.Join(m.dir, "journal") }

// own has the claim of a volume say which volume it is of, as one that Moor made does.
func (c *cluster) own(volume string) {
	c.t.Helper()
	claim, v := &moorv1alpha1.WriterClaim{}, &storagev1alpha1.Volume{}
	key := client.ObjectKey{Namespace: ns, Name: volume}
	c.must(c.Get(c.t.Context(), key, claim))
	c.must(c.Get(c.t.Context(), key, v))
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: "Volume", Name: volume, UID: v.UID}}
	c.must(c.Update(c.t.Context(), claim))
}

// shownUnderSeven is volume v1, which is shown under epoch 7, and whose claim says which volume
// it is of.
func shownUnderSeven(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 7)
	c.own("v1")
	if now := m.settle(a.Name); !now.Status.DPU.Attached {
		t.Fatalf("not shown: %+v", now.Status)
	}
	return c, m, a
}

// strip takes an attachment away without its DPU, by taking the holds off.
func (c *cluster) strip(name string) {
	c.t.Helper()
	a := c.get(name)
	a.Finalizers = nil
	c.must(c.Update(c.t.Context(), a))
	c.must(c.Delete(c.t.Context(), a))
}

// TestRestoredEpochIsNotShown: the cluster of the DPUs was restored from a backup, and
// tells of an epoch that this DPU has retired since as if it stood.
func TestRestoredEpochIsNotShown(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			c.volume("v1", corev1.ReadWriteOnce)
			c.grant(c.attachment("v1", "dpu-1"), 1)
			a := m.settle("dpu-1-v1")
			if !a.Status.DPU.Attached {
				t.Fatalf("not shown: %+v", a.Status)
			}
			take(c, a)
			m.settle(a.Name)
			if now := c.get(a.Name); now != nil { // fenced
				c.must(c.Delete(t.Context(), now))
				m.settle(a.Name)
			}
			m.restartDriver()
			c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1})
			c.grant(c.attachment("v1", "dpu-1"), 1)
			now := m.settle(a.Name)
			if now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "restored from a backup") {
				t.Fatalf("shown again: %+v, %v", now.Status, m.shown())
			}
			c.grant(now, 2)
			if now = m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Epoch != 2 {
				t.Fatalf("not shown under a new epoch: %+v", now.Status)
			}
		})
	}
}

// TestRestoredEpochIsGivenBack: a DPU whose journal tells of more epochs than the claim under
// which it is granted the volume says so by retiring them all, so that the next grant is above.
func TestRestoredEpochIsGivenBack(t *testing.T) {
	for name, journal := range map[string]string{"retired": "retire", "shown": ""} {
		t.Run(name, func(t *testing.T) {
			c, m, a := shownUnderSeven(t)
			if journal == "retire" {
				c.fence(a.Name, 7)
				m.settle(a.Name)
			}
			c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.RetiredEpoch, d.Epoch = 0, 0 }))
			c.grant(c.get(a.Name), 3) // as the backup has it
			m.restartDriver()
			for range 5 {
				_ = m.pass(a.Name)
				if d := c.get(a.Name).Status.DPU; d.RetiredEpoch > 0 && (d.Attached || m.shown()["dev_v1-pvc"].Visible) {
					t.Fatalf("given back while it is shown: %+v, %v", d, m.shown())
				}
				m.clock.Step(drainTime)
			}
			now := m.settle(a.Name)
			if d := now.Status.DPU; d.Attached || d.RetiredEpoch != 7 {
				t.Fatalf("not given back: %+v, %v", d, m.shown())
			}
			c.grant(now, 8)
			if now = m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Epoch != 8 {
				t.Fatalf("not shown under a new epoch: %+v", now.Status)
			}
		})
	}
}

// TestGivenBackIsWithdrawn: an epoch is given back of a volume that is shown for an attachment
// of which nothing is on record any more.
func TestGivenBackIsWithdrawn(t *testing.T) {
	c, m, a := shownUnderSeven(t)
	c.strip(a.Name)
	c.grant(c.attachment("v1", "dpu-1"), 3)
	m.restartDriver()
	for range 5 {
		_ = m.pass(a.Name)
		if d := c.get(a.Name).Status.DPU; d.RetiredEpoch > 0 && m.shown()["dev_v1-pvc"].Visible {
			t.Fatalf("given back while it is shown: %+v, %v", d, m.shown())
		}
		m.clock.Step(drainTime)
	}
	if d := c.get(a.Name).Status.DPU; d.RetiredEpoch != 7 {
		t.Errorf("not given back: %+v", d)
	}
}

// TestForgottenDeviceIsWithdrawn: an attachment goes whose record is of a backup that is older
// than what is shown by it. Its epoch is not given back while the host sees the device.
func TestForgottenDeviceIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		record func(*storagev1alpha1.VolumeAttachmentDPU)
		epoch  int64
		drains bool // it is not on record by which incarnation of SNAP it was shown
	}{
		"of before it was shown":    {func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }, 7, true},
		"of before the last grants": {func(d *storagev1alpha1.VolumeAttachmentDPU) { d.RetiredEpoch, d.Epoch = 0, 3 }, 3, false},
		"of both, and a device is not": {func(d *storagev1alpha1.VolumeAttachmentDPU) {
			*d = storagev1alpha1.VolumeAttachmentDPU{DeviceName: "dev_x"}
		}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := shownUnderSeven(t)
			c.must(c.setDPU(a.Name, tc.record))
			c.grant(c.get(a.Name), tc.epoch)
			c.must(c.Delete(t.Context(), c.get(a.Name)))
			m.restartDriver()
			waited := false
			for now := c.get(a.Name); now != nil && now.Status.DPU.RetiredEpoch == 0; now = c.get(a.Name) {
				_ = m.pass(a.Name)
				waited = waited || c.get(a.Name) != nil && c.get(a.Name).Status.DPU.RetiredEpoch == 0
				m.clock.Step(drainTime)
			}
			if waited != tc.drains {
				t.Errorf("what it had sent was waited for: %t", waited)
			}
			if m.shown()["dev_v1-pvc"].Visible {
				t.Errorf("given back while it is shown: %+v", c.get(a.Name))
			}
			if now := c.get(a.Name); now != nil && now.Status.DPU.RetiredEpoch != 7 || len(m.fence.journal.Standing()) > 0 {
				t.Errorf("not given back: %+v", now)
			}
		})
	}
}

// TestForgottenDeviceIsFenced: so it is if the volume is fenced from the DPU first. What stands
// on record of the device is no reason to give a receipt.
func TestForgottenDeviceIsFenced(t *testing.T) {
	for name, tc := range map[string]struct {
		record func(*storagev1alpha1.VolumeAttachmentDPU)
		epoch  int64
		drains bool
	}{
		"of before it was shown":    {func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }, 7, true},
		"of before the last grants": {func(d *storagev1alpha1.VolumeAttachmentDPU) { d.RetiredEpoch, d.Epoch = 0, 3 }, 3, false},
		"of both, and a device is not": {func(d *storagev1alpha1.VolumeAttachmentDPU) {
			*d = storagev1alpha1.VolumeAttachmentDPU{DeviceName: "dev_x"}
		}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := shownUnderSeven(t)
			c.must(c.setDPU(a.Name, tc.record))
			c.grant(c.get(a.Name), tc.epoch)
			c.fence(a.Name, tc.epoch)
			m.restartDriver()
			waited := false
			for range 5 {
				_ = m.pass(a.Name)
				now := c.get(a.Name)
				if now.Status.DPU.RetiredEpoch != 0 {
					break
				}
				waited = true
				m.clock.Step(drainTime)
			}
			if waited != tc.drains {
				t.Errorf("what it had sent was waited for: %t", waited)
			}
			if m.shown()["dev_v1-pvc"].Visible {
				t.Errorf("a receipt while it is shown: %+v", c.get(a.Name).Status.DPU)
			}
			if now := c.get(a.Name); now.Status.DPU.RetiredEpoch != 7 || len(m.fence.journal.Standing()) > 0 {
				t.Errorf("not given back: %+v, standing %v", now.Status.DPU, m.fence.journal.Standing())
			}
		})
	}
}

// TestForgottenReplicaGoes: the device of a replica that is ready, and of which nothing stands on
// record any more, is withdrawn before its vendor is to remove it, who could not.
func TestForgottenReplicaGoes(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.role(a.Name, storagev1alpha1.RoleReplica)
	if now := m.settle(a.Name); !now.Status.DPU.PreEmulated {
		t.Fatalf("not ready: %+v", now.Status)
	}
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }))
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	m.restartDriver()
	for range 3 {
		_ = m.pass(a.Name)
	}
	if now := c.get(a.Name); now != nil || len(m.shown()) > 0 {
		t.Errorf("still there: %+v, shown %v", now, m.shown())
	}
}

// TestForgottenIsAnothers: a device that was shown for a later attachment of the volume is not
// withdrawn with an earlier one that goes.
func TestForgottenIsAnothers(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	earlier := c.attachment("v1", "dpu-1").DeepCopy()
	c.strip(earlier.Name)
	earlier.Name, earlier.UID, earlier.ResourceVersion = "earlier", "earlier", ""
	earlier.Finalizers = []string{storagev1alpha1.FinalizerDPUAttachment}
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 7)
	c.own("v1")
	if now := m.settle(a.Name); !now.Status.DPU.Attached {
		t.Fatalf("not shown: %+v", now.Status)
	}
	earlier.Spec.Epoch, earlier.Status = 3, storagev1alpha1.VolumeAttachmentStatus{StorageAttached: true}
	c.must(c.Create(t.Context(), earlier))
	c.must(c.Delete(t.Context(), c.get("earlier")))
	// So that the earlier one goes first.
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }))
	live := m.o.Attachments.DPU.Live
	m.o.Attachments.DPU.Live = &unlistedOnce{Reader: live} // so whose the device is, is not known
	if err := m.pass("earlier"); !errors.Is(err, errNoAnswer) {
		t.Errorf("it says %v", err)
	}
	m.o.Attachments.DPU.Live = live
	for range 3 {
		_ = m.pass("earlier")
		m.clock.Step(drainTime)
	}
	if !m.shown()["dev_v1-pvc"].Visible {
		t.Error("withdrawn")
	}
}

// TestTakenWhileAwayIsNotShown: a volume was taken from a DPU that had lost power, by the
// storage's word, and nothing of it is left here. The DPU came back before the cluster of the
// DPUs was restored from a backup of when it had the volume.
func TestTakenWhileAwayIsNotShown(t *testing.T) {
	c, m, a := attached(t)
	backup := c.get(a.Name)
	m.emu.Restart()
	c.strip(a.Name)
	m.boot = "another"
	m.restartDriver()
	c.must(m.patrol.Round(t.Context()))
	restored := backup.DeepCopy()
	restored.ResourceVersion = ""
	c.must(c.Create(t.Context(), restored))
	restored.Status = backup.Status
	c.must(c.Status().Update(t.Context(), restored))
	now := m.settle(a.Name)
	if now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "restored from a backup") {
		t.Fatalf("shown again: %+v, %v", now.Status, m.shown())
	}
}

// TestWhatOnlyACacheLacksIsNotOver: what a cache does not show yet is not taken for gone.
func TestWhatOnlyACacheLacksIsNotOver(t *testing.T) {
	c, m, a := attached(t)
	o := m.patrolOptions()
	o.Attachments = &attachments.Store{DPU: kube.Cluster{Client: newCluster(t).driver(), Live: c.driver()}, Node: m.node, Namespace: ns}
	c.must(patrol.New(o).Round(t.Context()))
	if now := m.settle(a.Name); !now.Status.DPU.Attached || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("withdrawn: %+v, %v", now.Status, m.shown())
	}
}

// TestFencedAndNeverShown: an epoch that was retired before anything was shown under it
// is over as well.
func TestFencedAndNeverShown(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	c.fence(a.Name, 1)
	c.own("v1")
	if now := m.settle(a.Name); now.Status.DPU.RetiredEpoch != 1 {
		t.Fatalf("not fenced: %+v", now.Status)
	}
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }))
	c.grant(a, 1)
	m.restartDriver()
	if now := m.settle(a.Name); now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible {
		t.Fatalf("shown: %+v", now.Status)
	}
}

// TestBrokenJournal: what is shown stays so, nothing is shown anew, and receipts are given.
func TestBrokenJournal(t *testing.T) {
	c, m, a := attached(t)
	c.volume("v2", corev1.ReadWriteOnce)
	c.must(os.WriteFile(m.journal(), []byte("{"), 0o600))
	m.restartDriver()
	c.grant(c.attachment("v2", "dpu-1"), 1)
	for range 5 {
		_ = m.pass("dpu-1-v2")
		_ = m.pass(a.Name)
	}
	if now := c.get("dpu-1-v2"); now.Status.DPU.Attached || m.shown()["dev_v2-pvc"].Visible || !strings.Contains(now.Status.Message, "move the file away") {
		t.Errorf("shown anew: %+v", now.Status)
	}
	if now := c.get(a.Name); !now.Status.DPU.Attached || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("withdrawn: %+v", now.Status)
	}
	c.fence(a.Name, 1)
	c.must(m.pass(a.Name))
	m.given(a.Name)
}

// TestJournalFirst: the epoch is in the journal before SNAP is told to show.
func TestJournalFirst(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	c.grant(c.attachment("v1", "dpu-1"), 3)
	c.must(os.Mkdir(m.journal()+".new", 0o700)) // where it cannot be written
	for range 5 {
		_ = m.pass("dpu-1-v1")
	}
	if n := m.calls("nvme_controller_attach_ns"); n != 0 || !strings.Contains(c.get("dpu-1-v1").Status.Message, "--state-dir") {
		t.Fatalf("shown %d times: %+v", n, c.get("dpu-1-v1").Status)
	}
	c.must(os.Remove(m.journal() + ".new"))
	if now := m.settle("dpu-1-v1"); !now.Status.DPU.Attached {
		t.Fatalf("not shown: %+v", now.Status)
	}
}

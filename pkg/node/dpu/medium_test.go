package dpu

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// epochal is a DPU whose vendor opens devices under epochs, with an attachment.
func epochal(t *testing.T, mode corev1.PersistentVolumeAccessMode) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	m.vendor.can.Epochs = true
	c.volume("v1", mode)
	a := c.attachment("v1", "dpu-1")
	return c, m, a
}

// fenced is what the vendor's attacher writes when the storage has answered.
func (c *cluster) fenced(name string, epoch int64) {
	c.t.Helper()
	a := c.get(name)
	a.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: a.UID, Epoch: epoch}
	c.must(c.Status().Update(c.t.Context(), a))
}

// open is the epoch at which the vendor has the device open.
func (m *machine) open() int64 {
	m.vendor.mu.Lock()
	defer m.vendor.mu.Unlock()
	return m.vendor.epochs["dev_v1-pvc"]
}

// TestGrantIsUsedAfterTheFence: the device is opened under the epoch, and shown when the
// storage has said that nothing before it is accepted, not earlier.
func TestGrantIsUsedAfterTheFence(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	c.grant(a, 3)
	for _, said := range []int64{0, 2} {
		if said > 0 {
			c.fenced(a.Name, said)
		}
		now := m.settle(a.Name)
		if len(m.shown()) != 0 || now.Status.DPU.Attached || m.open() != 3 || ptr.Deref(now.Status.DPU.OpenEpoch, -1) != 3 {
			t.Fatalf("said %d: shown %v, open at %d, status %+v", said, m.shown(), m.open(), now.Status)
		}
	}
	m.clock.Step(m.o.Timeout)
	if now := m.settle(a.Name); !strings.Contains(now.Status.Message, "accepts nothing of volume v1 below epoch 3") {
		t.Errorf("what is waited for is not told: %q", now.Status.Message)
	}
	c.fenced(a.Name, 3)
	if now := m.settle(a.Name); !m.shown()["dev_v1-pvc"].Visible || !now.Status.DPU.Attached || now.Status.DPU.Epoch != 3 {
		t.Fatalf("shown %v, status %+v", m.shown(), now.Status)
	}
}

// TestFenceIsReadFromTheAPIServer: a cache that is behind delays, one that is ahead of
// nothing shows nothing: the word of an attachment that had the name does not count.
func TestFenceIsReadFromTheAPIServer(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	c.grant(a, 3)
	now := c.get(a.Name)
	now.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: "before", Epoch: 9}
	c.must(c.Status().Update(t.Context(), now))
	if m.settle(a.Name); len(m.shown()) != 0 {
		t.Fatalf("shown by the word about another attachment: %v", m.shown())
	}
}

// TestReplicaHasNoEpoch until it is promoted; then it is opened under its epoch before it
// is shown.
func TestReplicaHasNoEpoch(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	c.role(a.Name, storagev1alpha1.RoleReplica)
	if now := m.settle(a.Name); m.open() != 0 || ptr.Deref(now.Status.DPU.OpenEpoch, -1) != 0 || !now.Status.DPU.PreEmulated {
		t.Fatalf("a replica is open at epoch %d, status %+v", m.open(), now.Status.DPU)
	}
	c.role(a.Name, storagev1alpha1.RolePrimary)
	c.grant(a, 2)
	c.fenced(a.Name, 2)
	m.vendor.fail["OpenAtEpoch"] = fmt.Errorf("the target is away: %w", provisioner.ErrUnavailable)
	if err := m.pass(a.Name); err == nil || m.shown()["dev_v1-pvc"].Visible {
		t.Fatalf("%v: shown without its epoch: %v", err, m.shown())
	}
	if now := m.settle(a.Name); m.open() != 2 || !m.shown()["dev_v1-pvc"].Visible || !now.Status.DPU.Attached {
		t.Fatalf("open at epoch %d, shown %v, status %+v", m.open(), m.shown(), now.Status)
	}
	c.must(os.Remove(m.pluginSocket()))
	_ = m.pass(a.Name)
	if now := c.get(a.Name); !now.Status.DPU.Attached || !m.shown()["dev_v1-pvc"].Visible {
		t.Fatalf("withdrawn as the plugin is away: %+v", now.Status)
	}
}

// TestShownBeforeItsVendorKnewEpochs: what is shown stays shown and is opened under its
// epoch; it waits for no word.
func TestShownBeforeItsVendorKnewEpochs(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	m.vendor.can.Epochs = false
	c.grant(a, 3)
	if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.OpenEpoch != nil || m.open() != 0 {
		t.Fatalf("without epochs: %+v, open at %d", now.Status.DPU, m.open())
	}
	attached := m.calls("nvme_controller_attach_ns")
	m.vendor.can.Epochs = true
	now := m.settle(a.Name)
	if !now.Status.DPU.Attached || m.open() != 3 || ptr.Deref(now.Status.DPU.OpenEpoch, -1) != 3 || m.calls("nvme_controller_attach_ns") != attached {
		t.Fatalf("with epochs: %+v, open at %d", now.Status.DPU, m.open())
	}
	m.vendor.fail["OpenAtEpoch"] = fmt.Errorf("the target is away: %w", provisioner.ErrUnavailable)
	if err := m.pass(a.Name); err != nil {
		t.Errorf("a shown device that is open under its epoch needs no more: %v", err)
	}
	m.emu.Restart()
	if m.settle(a.Name); !m.shown()["dev_v1-pvc"].Visible {
		t.Fatal("not shown again, under the same epoch, after SNAP has restarted")
	}
}

// TestSpentEpochIsGivenBack: an epoch that the storage has fenced, though the claim grants it as after a
// restore, is given back once nothing is shown, so that the next grant is above.
func TestSpentEpochIsGivenBack(t *testing.T) {
	for name, shown := range map[string]bool{"shown": true, "not shown yet": false} {
		t.Run(name, func(t *testing.T) {
			c, m, a := epochal(t, corev1.ReadWriteOnce)
			c.grant(a, 3)
			c.fenced(a.Name, 3)
			if shown {
				m.settle(a.Name)
			}
			m.vendor.mu.Lock()
			m.vendor.epochs = map[string]int64{"dev_v1-pvc": 4}
			m.vendor.mu.Unlock()
			for range 5 {
				_ = m.pass(a.Name)
				if d := c.get(a.Name).Status.DPU; d.RetiredEpoch > 0 && (d.Attached || m.shown()["dev_v1-pvc"].Visible) {
					t.Fatalf("given back while it is shown: %+v, %v", d, m.shown())
				}
			}
			now := m.settle(a.Name)
			if d := now.Status.DPU; d.RetiredEpoch != 3 || d.Attached || m.shown()["dev_v1-pvc"].Visible {
				t.Fatalf("not given back: %+v, shown %v, %q", d, m.shown(), now.Status.Message)
			}
			c.grant(now, 4)
			c.fenced(a.Name, 4)
			if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Epoch != 4 {
				t.Errorf("not shown under the next epoch: %+v", now.Status)
			}
		})
	}
}

// TestOpenFails: what is no word of the storage about the epoch gives nothing back.
func TestOpenFails(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	c.grant(a, 3)
	c.fenced(a.Name, 3)
	m.vendor.onOpen = func() error { return fmt.Errorf("the target is away: %w", provisioner.ErrUnavailable) }
	for range 5 {
		_ = m.pass(a.Name)
	}
	if d := c.get(a.Name).Status.DPU; d.RetiredEpoch != 0 || d.Attached {
		t.Errorf("given back: %+v", d)
	}
}

// TestDeviceMadeAnewIsOpenedAnew: SNAP has lost the device, and the vendor makes one of
// the same name, which has no epoch.
func TestDeviceMadeAnewIsOpenedAnew(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	c.grant(a, 3)
	c.fenced(a.Name, 3)
	m.settle(a.Name)
	m.emu.Restart()
	m.vendor.mu.Lock()
	m.vendor.epochs = nil
	m.vendor.mu.Unlock()
	now := m.settle(a.Name)
	if !m.shown()["dev_v1-pvc"].Visible || m.open() != 3 || ptr.Deref(now.Status.DPU.OpenEpoch, -1) != 3 {
		t.Fatalf("shown %v, open at %d, status %+v", m.shown(), m.open(), now.Status.DPU)
	}
}

// TestVolumesWithoutEpochs: several writers have none, and a vendor that opens a device
// under none says so.
func TestVolumesWithoutEpochs(t *testing.T) {
	t.Run("several writers", func(t *testing.T) {
		_, m, a := epochal(t, corev1.ReadWriteMany)
		if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.OpenEpoch != nil || m.open() != 0 {
			t.Fatalf("status %+v, open at %d", now.Status.DPU, m.open())
		}
	})
	t.Run("this device takes none", func(t *testing.T) {
		c, m, a := epochal(t, corev1.ReadWriteOnce)
		c.grant(a, 3)
		m.vendor.noEpochs = true
		if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.OpenEpoch != nil {
			t.Fatalf("status %+v", now.Status)
		}
	})
}

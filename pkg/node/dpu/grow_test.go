package dpu

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// capacity is what snap-controller does when the volume has grown.
func (c *cluster) capacity(name, size string) {
	c.t.Helper()
	a := c.get(name)
	a.Spec.Capacity = ptr.To(resource.MustParse(size))
	c.must(c.Update(c.t.Context(), a))
}

// size is that of the device, as SNAP has it.
func (m *machine) size(device string) int64 {
	m.t.Helper()
	all, err := m.rpc.BdevGetBdevs(m.t.Context(), device)
	m.c.must(err)
	return all[0].SizeBytes()
}

func wantCapacity(t *testing.T, a *storagev1alpha1.VolumeAttachment, want string) {
	t.Helper()
	have := a.Status.DPU.Capacity
	if have == nil || have.Cmp(resource.MustParse(want)) != 0 {
		t.Fatalf("the status tells of %v, want %s", have, want)
	}
}

// TestGrows: a device that the host has follows its volume, and stays shown.
func TestGrows(t *testing.T) {
	c, m, a := attached(t)
	before := a.Status.DPU
	m.vendor.mib = 2
	c.capacity(a.Name, "2Mi")
	a = m.settle(a.Name)
	wantCapacity(t, a, "2Mi")
	if size := m.size("dev_v1-pvc"); size != 2<<20 {
		t.Errorf("the device has %d bytes", size)
	}
	if now := a.Status.DPU; now.PCIDeviceAddress != before.PCIDeviceAddress || !now.Attached || a.Status.Message != "" {
		t.Errorf("what the host sees changed: %+v, %q", now, a.Status.Message)
	}
	sizes := m.calls("bdev_get_bdevs")
	opened := len(m.vendor.opened)
	c.must(m.pass(a.Name))
	if len(m.vendor.opened) != opened || m.calls("bdev_get_bdevs") != sizes+1 { // GetDevice asks once
		t.Error("a device that is large enough was looked at again")
	}
}

// TestGrowthFails: what cannot grow yet is said, tried again, and stays shown.
func TestGrowthFails(t *testing.T) {
	c, m, a := attached(t)
	c.capacity(a.Name, "2Mi") // and the vendor does not let the device have it
	err := m.pass(a.Name)
	if !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	a = c.get(a.Name)
	if !a.Status.DPU.Attached || !strings.Contains(a.Status.Message, "has 32768 bytes and its volume 2097152") {
		t.Fatalf("attached %t, says %q", a.Status.DPU.Attached, a.Status.Message)
	}
	m.vendor.mib = 2
	a = m.settle(a.Name)
	wantCapacity(t, a, "2Mi")
	if a.Status.Message != "" {
		t.Errorf("still says %q", a.Status.Message)
	}
}

// TestReplicaGrowsHidden: a replica has the volume's size before it is needed,
// and one that has not gets it before it is shown.
func TestReplicaGrowsHidden(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.role(a.Name, storagev1alpha1.RoleReplica)
	m.settle(a.Name)
	m.vendor.mib = 2
	c.capacity(a.Name, "2Mi")
	a = m.settle(a.Name)
	wantCapacity(t, a, "2Mi")
	if !a.Status.DPU.PreEmulated || a.Status.DPU.Attached || m.size("dev_v1-pvc") != 2<<20 {
		t.Fatalf("the replica is %+v with %d bytes", a.Status.DPU, m.size("dev_v1-pvc"))
	}
	m.vendor.mib = 3
	c.capacity(a.Name, "3Mi")
	c.role(a.Name, storagev1alpha1.RolePrimary)
	c.grant(a, 1)
	m.vendor.fail["CreateDevice"] = provisioner.ErrUnavailable
	if err := m.pass(a.Name); err == nil || m.shown()["dev_v1-pvc"].Visible {
		t.Fatalf("shown with less than the volume has: %v", err)
	}
	if a = m.settle(a.Name); !a.Status.DPU.Attached || m.size("dev_v1-pvc") != 3<<20 {
		t.Fatalf("%+v with %d bytes", a.Status.DPU, m.size("dev_v1-pvc"))
	}
}

// TestGrowthOfALostDevice: what SNAP has forgotten is made with the new size.
func TestGrowthOfALostDevice(t *testing.T) {
	c, m, a := attached(t)
	m.emu.Restart()
	m.vendor.mib = 2
	c.capacity(a.Name, "2Mi")
	a = m.settle(a.Name)
	wantCapacity(t, a, "2Mi")
	if !m.shown()["dev_v1-pvc"].Visible || m.size("dev_v1-pvc") != 2<<20 {
		t.Errorf("shown %+v with %d bytes", m.shown(), m.size("dev_v1-pvc"))
	}
}

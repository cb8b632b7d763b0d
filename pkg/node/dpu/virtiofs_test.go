package dpu

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// sharing is an attachment of a file system of the access mode, shown by
// virtio-fs.
func sharing(t *testing.T, access corev1.PersistentVolumeAccessMode) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	m.vendor.dir = t.TempDir()
	m.vendor.can = vendorplugin.Capabilities{Filesystem: true, Get: true}
	v := c.volume("v1", access)
	v.Spec.Request.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	c.must(c.Update(t.Context(), v))
	a := c.plug(c.attachment("v1", "dpu-1"))
	if access == corev1.ReadWriteOnce {
		c.grant(a, 1)
	}
	now := m.settle(a.Name)
	if !now.Status.DPU.Attached {
		t.Fatalf("not shown: %+v", now.Status)
	}
	return c, m, now
}

func TestFilesystemIsShown(t *testing.T) {
	c, m, a := sharing(t, corev1.ReadWriteMany)
	want := storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, PCIDeviceAddress: a.Status.DPU.PCIDeviceAddress, FuncVUID: a.Status.DPU.FuncVUID, DeviceName: "dev_v1-pvc",
		Provider: "nvidia", Incarnation: m.exposures.Incarnation("nvidia"),
		FsdevAttrs: &storagev1alpha1.FsdevAttrs{FilesystemTag: "dev_v1-pvctag"},
	}
	if diff := cmp.Diff(want, a.Status.DPU); diff != "" || want.FuncVUID == "" || want.PCIDeviceAddress == "" {
		t.Fatal(diff)
	}
	if asked := m.vendor.opened[0]; asked.Mode != provisioner.Filesystem {
		t.Fatalf("the plugin was asked for %+v", asked)
	}
	c.must(m.patrol.Round(t.Context())) // all is as it is on record: nothing to look at again
	if n := len(m.queue.Events()); n != 0 {
		t.Fatalf("%d attachments differ from what is shown", n)
	}
	m.restartDriver()
	before := a.ResourceVersion
	if now := m.settle(a.Name); now.ResourceVersion != before {
		t.Fatalf("a restart of the driver changed %+v to %+v", a.Status, now.Status)
	}
	m.emu.Restart()
	again := m.settle(a.Name)
	a.Status.DPU.Incarnation = m.exposures.Incarnation("nvidia")
	if diff := cmp.Diff(a.Status.DPU, again.Status.DPU); diff != "" {
		t.Fatalf("after a restart of SNAP: %s", diff)
	}
	c.must(c.Delete(t.Context(), again))
	if left := m.settle(a.Name); left != nil {
		t.Fatalf("left: %+v", left.Status)
	}
	m.wantEmpty()
	if all, err := m.rpc.FsdevGetFsdevs(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("fsdevs are left: %+v, %v", all, err)
	}
}

// TestFilesystemFence: a receipt is written of a host without power; of one that
// hangs none is, since nothing stops what it has in flight.
func TestFilesystemFence(t *testing.T) {
	c, m, a := sharing(t, corev1.ReadWriteOnce)
	if a.Status.DPU.Epoch != 1 {
		t.Fatalf("shown without an epoch: %+v", a.Status.DPU)
	}
	m.steer("moor_host", map[string]any{"answers": false})
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-1", Attachment: a.Name, Epoch: 1})
	if err := m.pass(a.Name); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "has not let go") {
		t.Fatalf("fenced from a host that hangs: %v", err)
	}
	if now := c.get(a.Name); now.Status.DPU.RetiredEpoch != 0 {
		t.Fatalf("a receipt, of a host that hangs: %+v", now.Status)
	}
	m.steer("moor_link", map[string]any{"up": false})
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now.Status.DPU.RetiredEpoch != 1 || now.Status.DPU.Attached {
		t.Fatalf("no receipt: %+v", now.Status)
	}
	devices, err := m.rpc.VirtioFSDevices(t.Context())
	if err != nil || len(devices) != 0 {
		t.Fatalf("left: %+v, %v", devices, err)
	}
}

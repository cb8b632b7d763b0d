package dpu

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// role gives the attachment a role, as snap-host-controller does.
func (c *cluster) role(name string, role storagev1alpha1.Role) {
	c.t.Helper()
	a := c.get(name)
	a.Spec.Role = role
	c.must(c.Update(c.t.Context(), a))
}

// TestReplicaIsPromoted: a replica stands ready through everything until the
// right is granted; then one call shows it, though the vendor is down.
func TestReplicaIsPromoted(t *testing.T) {
	c, m, a := ready(t)
	c.grantOnly(a, 1) // granted before the role is changed: still a replica
	if now := m.settle(a.Name); now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible {
		t.Fatalf("a replica is shown: %+v", now.Status)
	}
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-2", Attachment: "dpu-2-v1", Epoch: 1})
	c.role(a.Name, storagev1alpha1.RolePrimary)
	now := m.settle(a.Name) // waits for the right, and stays ready
	if !now.Status.DPU.PreEmulated || now.Status.DPU.Attached || !strings.Contains(now.Status.Message, "dpu-2 holds it") || !m.shown()["dev_v1-pvc"].Hidden {
		t.Fatalf("while it waits for the right: %+v, %v", now.Status, m.shown())
	}
	created := m.calls("nvme_controller_create") + m.calls("nvme_controller_resume")
	c.must(os.Remove(m.pluginSocket()))
	c.grant(now, 2)
	c.must(m.pass(a.Name))
	now = c.get(a.Name)
	want := *a.Status.DPU.DeepCopy()
	want.Attached, want.PreEmulated, want.Epoch = true, false, 2
	if diff := cmp.Diff(want, now.Status.DPU); diff != "" || !m.shown()["dev_v1-pvc"].Visible || now.Status.Message != "" {
		t.Fatalf("shown %v, message %q, status (-want +got):\n%s", m.shown(), now.Status.Message, diff)
	}
	if m.calls("nvme_controller_create")+m.calls("nvme_controller_resume") != created || m.calls("nvme_controller_attach_ns") != 1 {
		t.Fatal("the promotion made more than the attachment of the namespace")
	}
}

// grantOnly grants the claim without writing the epoch into the attachment.
func (c *cluster) grantOnly(a *storagev1alpha1.VolumeAttachment, epoch int64) {
	c.claim(a.VolumeName(), &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: a.Spec.NodeName, Attachment: a.Name, Epoch: epoch})
}

// TestReplicaWarmth: a replica is shown only where its warmth asks for that
// and several hosts may have the volume; it follows a change both ways, and its
// function stays the same.
func TestReplicaWarmth(t *testing.T) {
	const cold, warm = storagev1alpha1.WarmthPreEmulated, storagev1alpha1.WarmthAttached
	for name, tc := range map[string]struct {
		mode   corev1.PersistentVolumeAccessMode
		warmth []storagev1alpha1.Warmth
		shown  []bool
	}{
		"many writers, nothing said":      {corev1.ReadWriteMany, []storagev1alpha1.Warmth{""}, []bool{false}},
		"many writers, attached":          {corev1.ReadWriteMany, []storagev1alpha1.Warmth{warm}, []bool{true}},
		"many readers, attached":          {corev1.ReadOnlyMany, []storagev1alpha1.Warmth{warm}, []bool{true}},
		"many writers, up and down":       {corev1.ReadWriteMany, []storagev1alpha1.Warmth{cold, warm, cold}, []bool{false, true, false}},
		"one writer, whatever is said":    {corev1.ReadWriteOnce, []storagev1alpha1.Warmth{warm, cold, warm}, []bool{false, false, false}},
		"one pod alone, whatever is said": {corev1.ReadWriteOncePod, []storagev1alpha1.Warmth{warm}, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			c.volume("v1", tc.mode)
			c.role(c.attachment("v1", "dpu-1").Name, storagev1alpha1.RoleReplica)
			function := ""
			for i, warmth := range tc.warmth {
				a := c.get("dpu-1-v1")
				a.Spec.Warmth = warmth
				c.must(c.Update(t.Context(), a))
				a = m.settle("dpu-1-v1")
				if a.Status.DPU.Attached != tc.shown[i] || a.Status.DPU.PreEmulated == tc.shown[i] || m.shown()["dev_v1-pvc"].Visible != tc.shown[i] || a.Status.Message != "" {
					t.Fatalf("with warmth %q: %+v, %v", warmth, a.Status, m.shown())
				}
				if function == "" {
					function = a.Status.DPU.PCIDeviceAddress
				}
				if a.Status.DPU.PCIDeviceAddress != function {
					t.Errorf("the function changed from %s to %s", function, a.Status.DPU.PCIDeviceAddress)
				}
			}
			if n := m.calls("nvme_controller_attach_ns"); n != 0 && provisioner.SingleNode([]corev1.PersistentVolumeAccessMode{tc.mode}) {
				t.Errorf("a single writer's replica was visible %d times", n)
			}
		})
	}
}

// TestSharedReplicaIsPromoted: without a claim; what is shown already stays so.
func TestSharedReplicaIsPromoted(t *testing.T) {
	for _, warmth := range []storagev1alpha1.Warmth{storagev1alpha1.WarmthPreEmulated, storagev1alpha1.WarmthAttached} {
		c := newCluster(t)
		m := newMachine(t, c, "dpu-1")
		c.volume("v1", corev1.ReadWriteMany)
		a := c.attachment("v1", "dpu-1")
		c.role(a.Name, storagev1alpha1.RoleReplica)
		a = c.get(a.Name)
		a.Spec.Warmth = warmth
		c.must(c.Update(t.Context(), a))
		m.settle(a.Name)
		made := m.calls("nvme_controller_create")
		c.role(a.Name, storagev1alpha1.RolePrimary)
		if now := m.settle(a.Name); !now.Status.DPU.Attached || m.calls("nvme_controller_attach_ns") != 1 || m.calls("nvme_controller_create") != made {
			t.Errorf("%s: %+v, attached %d times", warmth, now.Status, m.calls("nvme_controller_attach_ns"))
		}
	}
}

// TestReplicaIsNeverVisible: no matter what has shown it, and what is recorded.
func TestReplicaIsNeverVisible(t *testing.T) {
	c, m, a := ready(t)
	e := m.shown()["dev_v1-pvc"]
	spec := provisioner.ExposeSpec{Device: e.Device, FunctionType: provisioner.VF, PCIAddress: e.PCIAddress, NamespaceID: e.NamespaceID, UUID: e.UUID}
	_, err := m.exposures.Service("nvidia").Expose(t.Context(), spec)
	c.must(err)
	c.must(os.Remove(m.pluginSocket()))
	c.must(m.patrol.Round(t.Context()))
	select {
	case <-m.queue.Events():
	default:
		t.Fatal("the patrol has not noticed")
	}
	if err := m.pass(a.Name); !errors.Is(err, provisioner.ErrUnavailable) { // the vendor is down
		t.Fatal(err)
	}
	if now := c.get(a.Name); m.shown()["dev_v1-pvc"].Visible || now.Status.DPU.Attached || now.Status.DPU.PreEmulated {
		t.Fatalf("still visible, or said to be ready: %v, %+v", m.shown(), now.Status)
	}
	c.must(os.WriteFile(m.pluginSocket(), nil, 0o600))
	if diff := cmp.Diff(a.Status.DPU, m.settle(a.Name).Status.DPU); diff != "" {
		t.Fatalf("ready again (-before +after):\n%s", diff)
	}
}

// TestDemotion: a primary that becomes a replica is hidden, whatever the claim.
func TestDemotion(t *testing.T) {
	c, m, a := attached(t)
	c.role(a.Name, storagev1alpha1.RoleReplica)
	now := m.settle(a.Name)
	if !now.Status.DPU.PreEmulated || now.Status.DPU.Attached || now.Status.DPU.Epoch != 0 || !m.shown()["dev_v1-pvc"].Hidden {
		t.Fatalf("got %+v, %v", now.Status, m.shown())
	}
}

// TestReplicaLivesOn: neither the sweep nor a restart of anything takes a
// replica away for good; its end leaves nothing.
func TestReplicaLivesOn(t *testing.T) {
	c, m, a := ready(t)
	for range 5 {
		c.must(m.patrol.Round(t.Context()))
		m.clock.Step(time.Hour)
	}
	if len(m.queue.Events()) != 0 || !m.shown()["dev_v1-pvc"].Hidden {
		t.Fatalf("the patrol is not content: %v", m.shown())
	}
	m.restartDriver()
	m.emu.Restart()
	c.must(m.patrol.Round(t.Context()))
	if len(m.queue.Events()) != 1 {
		t.Fatal("the round has not noticed that the replica is gone")
	}
	a.Status.DPU.Incarnation, a.Status.DPU.Undrained = m.exposures.Incarnation("nvidia"), a.Status.DPU.Incarnation
	if diff := cmp.Diff(a.Status.DPU, m.settle(a.Name).Status.DPU); diff != "" {
		t.Fatalf("identity (-before +after):\n%s", diff)
	}
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	if left := m.settle(a.Name); left != nil {
		t.Fatalf("still there: %+v", left)
	}
	m.wantEmpty()
}

// TestReplicaYields: a primary beside a replica of the same volume on the same
// DPU takes the device over once it holds the right.
func TestReplicaYields(t *testing.T) {
	c, m, a := ready(t)
	b := a.DeepCopy()
	b.ObjectMeta = *(&storagev1alpha1.VolumeAttachment{}).ObjectMeta.DeepCopy()
	b.Name, b.Namespace, b.Spec.Role = "second", ns, storagev1alpha1.RolePrimary
	b.Status = storagev1alpha1.VolumeAttachmentStatus{}
	c.must(c.Create(t.Context(), b))
	b.Status.StorageAttached = true
	c.must(c.Status().Update(t.Context(), b))
	c.grant(b, 1)
	if now := m.settle("second"); !now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != a.Status.DPU.PCIDeviceAddress {
		t.Fatalf("got %+v", now.Status)
	}
	m.settle(a.Name)
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	m.settle(a.Name)
	if !m.shown()["dev_v1-pvc"].Visible || c.get(a.Name) != nil {
		t.Fatalf("the replica took the primary's device along: %v", m.shown())
	}
}

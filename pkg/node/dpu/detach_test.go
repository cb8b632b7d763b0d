package dpu

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// secondOf makes another attachment of volume v1 to the DPU, of a role and an epoch.
func (c *cluster) secondOf(a *storagev1alpha1.VolumeAttachment, role storagev1alpha1.Role, epoch int64) *storagev1alpha1.VolumeAttachment {
	c.t.Helper()
	b := c.get(a.Name)
	b.Name, b.UID, b.ResourceVersion, b.Finalizers = "second", "second", "", nil
	b.Spec.Role, b.Spec.Epoch = role, 0
	c.must(c.Create(c.t.Context(), b))
	b.Status = storagev1alpha1.VolumeAttachmentStatus{StorageAttached: true}
	c.must(c.Status().Update(c.t.Context(), b))
	if epoch != 0 {
		c.grant(b, epoch)
	}
	return c.get(b.Name)
}

// going has the attachment be deleted while snap-host-controller holds it.
func (c *cluster) going(name string) {
	c.t.Helper()
	c.held(name)
	c.must(c.Delete(c.t.Context(), c.get(name)))
}

// TestLeavesTheDeviceToAnother: a replica that goes leaves the device to the attachment that has it now, says that
// it has none, and does not say so before what it had sent is drained.
func TestLeavesTheDeviceToAnother(t *testing.T) {
	c, m, a := ready(t)
	c.held(a.Name)
	b := c.secondOf(a, storagev1alpha1.RolePrimary, 1)
	if now := m.settle(b.Name); !now.Status.DPU.Attached {
		t.Fatalf("got %+v", now.Status)
	}
	m.emu.Restart()
	m.settle(b.Name)
	c.going(a.Name)
	c.must(m.pass(a.Name))
	c.wantHeld(a.Name)
	if now := c.get(a.Name).Status.DPU; now.PreEmulated || now.Undrained != a.Status.DPU.Incarnation {
		t.Errorf("it says %+v", now)
	}
	m.clock.Step(drainTime)
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); len(now.Finalizers) != 1 || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("finalizers %v, shown %v", now.Finalizers, m.shown())
	}
}

// TestLeavesNothingToOneWithoutADevice: another attachment goes first, and has no device: what this one has made
// goes with it.
func TestLeavesNothingToOneWithoutADevice(t *testing.T) {
	c, m, a := ready(t)
	c.secondOf(a, storagev1alpha1.RolePrimary, 1)
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	c.must(m.pass(a.Name))
	if m.wantEmpty(); c.get(a.Name) != nil {
		t.Error("it stays")
	}
}

// TestSharedDeviceIsLeft: of two attachments of a volume of several writers, of which both say that it is shown, one
// goes, and the other keeps it: nothing was granted to it that could end.
func TestSharedDeviceIsLeft(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteMany)
	a := m.settle(c.attachment("v1", "dpu-1").Name)
	b := c.secondOf(a, storagev1alpha1.RolePrimary, 0)
	c.must(c.setDPU(b.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = *a.Status.DPU.DeepCopy() }))
	b = c.get(b.Name)
	b.Finalizers = []string{storagev1alpha1.FinalizerDPUAttachment}
	c.must(c.Update(t.Context(), b))
	c.must(c.Delete(t.Context(), b))
	c.must(m.pass(b.Name))
	if c.get(b.Name) != nil || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("%+v, shown %v", c.get(b.Name), m.shown())
	}
}

// TestDetachWithoutTheCache: whether the device is another's cannot be told, so nothing is taken away.
func TestDetachWithoutTheCache(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.Delete(t.Context(), a))
	m.o.Attachments.DPU.Client = unlisted{c.driver()}
	if err := m.pass(a.Name); !errors.Is(err, errNoAnswer) || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("%v, shown %v", err, m.shown())
	}
	c.wantHeld(a.Name)
}

// TestDetachWithoutTheServer: what is on record, or was never made, is taken away without a list of the API server,
// also beside other volumes.
func TestDetachWithoutTheServer(t *testing.T) {
	for name, prepare := range map[string]func(*cluster, *machine) string{
		"beside another volume": func(c *cluster, m *machine) string {
			c.volume("v2", corev1.ReadWriteOnce)
			c.grant(c.attachment("v2", "dpu-1"), 1)
			m.settle("dpu-1-v2")
			return "dpu-1-v1"
		},
		"alone": func(*cluster, *machine) string { return "dpu-1-v1" },
		"naming no volume, beside another": func(c *cluster, _ *machine) string {
			a := c.attachment("none", "dpu-1")
			a.Spec.Source.VolumeRef, a.Finalizers = nil, []string{storagev1alpha1.FinalizerDPUAttachment}
			c.must(c.Update(c.t.Context(), a))
			return a.Name
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, _ := attached(t)
			going := prepare(c, m)
			m.o.Attachments.DPU.Live = unlisted{c.driver()}
			c.must(c.Delete(t.Context(), c.get(going)))
			c.must(m.pass(going))
			if c.get(going) != nil {
				t.Errorf("it stays: %+v", c.get(going).Status)
			}
		})
	}
}

// TestDetachOfNothingWithoutTheServer: where SNAP shows nothing, nothing has to be asked about it.
func TestDetachOfNothingWithoutTheServer(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	m.settle(a.Name)
	m.o.Attachments.DPU.Live = unlisted{c.driver()}
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now != nil {
		t.Errorf("it stays: %+v", now.Status)
	}
}

// TestUnrecordedIsWithdrawn: a device of the volume of which nothing is on record is taken away, if no other
// attachment could have it; those of other volumes never are.
func TestUnrecordedIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*cluster, *machine)
		stays   bool // the device is shown
		says    string
	}{
		"alone": {prepare: func(*cluster, *machine) {}},
		"another has the volume": {prepare: func(c *cluster, _ *machine) {
			c.secondOf(c.get("dpu-1-v1"), storagev1alpha1.RoleReplica, 0)
		}, stays: true},
		"SNAP does not let go": {prepare: func(_ *cluster, m *machine) {
			m.inject(map[string]any{"method": "nvme_controller_destroy", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
		}, stays: true, says: "take device dev_v1-pvc, which is on no record, away from the host"},
		"the API server does not list": {prepare: func(c *cluster, m *machine) { m.o.Attachments.DPU.Live = unlisted{c.driver()} }, stays: true, says: errNoAnswer.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := ready(t)
			c.volume("v2", corev1.ReadWriteOnce)
			c.grant(c.attachment("v2", "dpu-1"), 1)
			m.settle("dpu-1-v2")
			c.forget(a.Name)
			heard := m.listen()
			tc.prepare(c, m)
			c.must(c.Delete(t.Context(), c.get(a.Name)))
			err := m.pass(a.Name)
			if (err != nil) != tc.stays || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it says %v", err)
			}
			if _, there := m.shown()["dev_v1-pvc"]; there != tc.stays {
				t.Errorf("shown %v", m.shown())
			}
			if calls := heard.since(); slices.Contains(calls, "withdraw dev_v2-pvc") || !m.shown()["dev_v2-pvc"].Visible {
				t.Errorf("SNAP was told %q", calls)
			}
		})
	}
}

// TestStatusIsWrittenOnce: an attachment that goes in order has its status written once, at the end; only a receipt
// for which a fence waits is written early.
func TestStatusIsWrittenOnce(t *testing.T) {
	for name, want := range map[string]int{"detach": 1, "fence": 2} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			c.held(a.Name)
			if name == "fence" {
				c.fence(a.Name, 1)
			}
			c.must(c.Delete(t.Context(), c.get(a.Name)))
			m.vendor.fail["DeleteDevice"] = provisioner.ErrUnavailable // which the status tells at the end
			writes := 0
			c.onWrite = func(what string, effect func() error) error {
				if what == "status" {
					writes++
				}
				return effect()
			}
			if err := m.pass(a.Name); err == nil || writes != want {
				t.Errorf("%d times, %v", writes, err)
			}
		})
	}
}

// TestVolumeCannotBeRead: which vendor has the device is not known, so it is not removed, and the attachment stays.
func TestVolumeCannotBeRead(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.Delete(t.Context(), a))
	m.reading().silent = &storagev1alpha1.Volume{}
	if err := m.pass(a.Name); !errors.Is(err, errNoAnswer) || len(m.bdevs()) != 1 {
		t.Errorf("it says %v, left are %v", err, m.bdevs())
	}
	c.wantHeld(a.Name)
}

// TestVendorNeverChosen: an attachment of a volume that never had a vendor goes.
func TestVendorNeverChosen(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	v := c.volume("v1", corev1.ReadWriteMany)
	v.Spec.Volume.StorageVendorPluginName = ""
	c.must(c.Update(t.Context(), v))
	a := c.attachment("v1", "dpu-1")
	m.settle(a.Name)
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	if left := m.settle(a.Name); left != nil {
		t.Errorf("left: %+v", left.Status)
	}
}

// TestReplicaLeavesNoEpoch: nothing was granted to a replica, so the journal of its DPU is not written as it goes.
func TestReplicaLeavesNoEpoch(t *testing.T) {
	c, m, a := ready(t)
	c.claim("v1", nil)
	c.own("v1")
	c.going(a.Name)
	c.must(m.pass(a.Name))
	if _, err := os.Stat(m.journal()); !os.IsNotExist(err) {
		t.Errorf("the journal is written: %v", err)
	}
}

// TestNoVolumeNeedsNoVendor: an attachment that names no volume has no device, so no vendor is asked of it as it goes.
func TestNoVolumeNeedsNoVendor(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	m.vendor.can.List = true
	a := c.attachment("v1", "dpu-1")
	a.Spec.Source.VolumeRef = nil
	controllerutil.AddFinalizer(a, storagev1alpha1.FinalizerDPUAttachment)
	c.must(c.Update(t.Context(), a))
	c.going(a.Name)
	m.vendor.fail["ListDevices"] = provisioner.ErrUnavailable
	c.must(m.pass(a.Name))
	if left := c.get(a.Name).Finalizers; len(left) != 1 || !m.vendor.pending("ListDevices") {
		t.Errorf("held by %v, or a vendor was asked", left)
	}
}

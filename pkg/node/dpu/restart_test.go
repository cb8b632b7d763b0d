package dpu

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestServiceRestartKeepsIdentity(t *testing.T) {
	c, m, a := attached(t)
	c.volume("v2", corev1.ReadWriteMany)
	m.emu.Restart()
	// A new attachment comes first: it must not take the function that the
	// host knows as v1's.
	b := m.settle(c.attachment("v2", "dpu-1").Name)
	if b.Status.DPU.PCIDeviceAddress == a.Status.DPU.PCIDeviceAddress {
		t.Fatalf("v2 was given the function of v1, %s", b.Status.DPU.PCIDeviceAddress)
	}
	if err := m.patrol.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-m.queue.Events():
		if e.Object.GetName() != a.Name {
			t.Fatalf("looks again at %s", e.Object.GetName())
		}
	default:
		t.Fatal("the round has not noticed that v1 is gone")
	}
	now := m.settle(a.Name)
	want := a.Status.DPU
	want.Incarnation, want.Undrained = m.exposures.Incarnation("nvidia"), want.Incarnation
	if diff := cmp.Diff(want, now.Status.DPU); diff != "" {
		t.Fatalf("identity (-before +after):\n%s", diff)
	}
	e := m.shown()["dev_v1-pvc"]
	if !e.Visible || e.UUID != a.Status.DPU.BdevAttrs.NVMeUUID || e.PCIAddress != a.Status.DPU.PCIDeviceAddress {
		t.Fatalf("the host sees %+v", e)
	}
}

func TestDriverRestartChangesNothing(t *testing.T) {
	c, m, a := attached(t)
	m.restartDriver()
	m.settle(a.Name)
	if diff := cmp.Diff(a, c.get(a.Name)); diff != "" {
		t.Fatalf("changed:\n%s", diff)
	}
}

// TestReceiptOutlivesTheVendor: an attachment that goes while its plugin is dead
// says at once that its epoch is over, and holds to that, over restarts of
// driver and SNAP, until the plugin is back; then nothing is left.
func TestReceiptOutlivesTheVendor(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.Delete(t.Context(), a))
	c.must(os.Remove(m.pluginSocket()))
	over := func(when string) {
		t.Helper()
		if err := m.pass(a.Name); !errors.Is(err, provisioner.ErrUnavailable) {
			t.Fatalf("%s: %v", when, err)
		}
		now := c.get(a.Name)
		if now == nil || now.Status.DPU.RetiredEpoch != 1 || now.Status.DPU.Attached || now.Status.DPU.DeviceName == "" || len(m.shown()) != 0 {
			t.Fatalf("%s: %+v, shown %v", when, now, m.shown())
		}
	}
	over("plugin dead")
	m.restartDriver()
	over("driver restarted")
	m.emu.Restart()
	_ = m.patrol.Round(t.Context()) // it tells that the plugin does not answer
	over("SNAP restarted")
	c.must(os.WriteFile(m.pluginSocket(), nil, 0o600))
	if left := m.settle(a.Name); left != nil {
		t.Fatalf("still there: %+v", left)
	}
	m.wantEmpty()
}

// TestTruthOverRecord: a device that SNAP lost and the vendor cannot make again
// is not called attached.
func TestTruthOverRecord(t *testing.T) {
	c, m, a := attached(t)
	m.emu.Restart()
	c.must(os.Remove(m.pluginSocket()))
	if err := m.pass(a.Name); err == nil {
		t.Fatal("attached without a plugin")
	}
	now := c.get(a.Name)
	if now.Status.DPU.Attached || now.Status.DPU.BdevAttrs == nil || now.Status.DPU.PCIDeviceAddress == "" {
		t.Fatalf("got %+v", now.Status.DPU)
	}
}

func TestDeviceRenamed(t *testing.T) {
	c, m, a := attached(t)
	m.emu.Restart()
	m.vendor.suffix = "x"
	now := m.settle(a.Name)
	if now.Status.DPU.DeviceName != "dev_v1-pvcx" || !now.Status.DPU.Attached || len(m.shown()) != 1 ||
		now.Status.DPU.BdevAttrs.NVMeUUID != a.Status.DPU.BdevAttrs.NVMeUUID {
		t.Fatalf("got %+v, shown %v", now.Status.DPU, m.shown())
	}
	m.clock.Step(drainTime)
	c.must(c.Delete(t.Context(), now))
	m.settle(a.Name)
	m.wantEmpty()
}

// TestDeviceReplaced: a vendor has lost what a device was made of while the host sees it, and
// makes another beside it. The host loses the one before it sees the other.
func TestDeviceReplaced(t *testing.T) {
	c, m, a := attached(t)
	m.vendor.suffix, m.vendor.fail["GetDevice"] = "x", provisioner.ErrNotFound
	c.must(m.patrol.Round(t.Context()))
	if got := m.queue.Events(); len(got) != 1 {
		t.Fatalf("looked at again: %v", got)
	}
	m.vendor.fail["GetDevice"] = provisioner.ErrNotFound
	if err := m.pass(a.Name); len(m.shown()) != 0 {
		t.Errorf("shown beside the other: %v (%v)", m.shown(), err)
	}
	if now := c.get(a.Name); now.Status.DPU.Attached || now.Status.DPU.DeviceName != "dev_v1-pvcx" {
		t.Errorf("recorded is %+v", now.Status.DPU)
	}
	now := m.settle(a.Name)
	if now.Status.DPU.DeviceName != "dev_v1-pvcx" || !now.Status.DPU.Attached || len(m.shown()) != 1 {
		t.Errorf("got %+v, shown %v", now.Status.DPU, m.shown())
	}
}

// TestUnrecordedDevice: the attachment is deleted right after the vendor made
// the device, before its name was written down.
func TestUnrecordedDevice(t *testing.T) {
	for name, list := range map[string]bool{"plugin lists": true, "plugin does not list": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			m.vendor.can.List = list
			c.volume("v1", corev1.ReadWriteMany)
			a := c.attachment("v1", "dpu-1")
			lost := errors.New("lost")
			c.onWrite = func(what string, effect func() error) error {
				if what == "status" {
					return lost
				}
				return effect()
			}
			if err := m.pass(a.Name); !errors.Is(err, lost) || len(m.bdevs()) != 1 {
				t.Fatalf("got %v, devices %v", err, m.bdevs())
			}
			c.onWrite = nil
			m.restartDriver()
			c.must(c.Delete(t.Context(), a))
			if left := m.settle(a.Name); left != nil {
				t.Fatalf("still there: %+v", left)
			}
			m.wantEmpty()
		})
	}
}

package dpu

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// plug makes the attachment ask for a hot-plugged function.
func (c *cluster) plug(a *storagev1alpha1.VolumeAttachment) *storagev1alpha1.VolumeAttachment {
	c.t.Helper()
	now := c.get(a.Name)
	now.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
	c.must(c.Update(c.t.Context(), now))
	return now
}

// plugged is an attachment shown on a hot-plugged function.
func plugged(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.plug(c.attachment("v1", "dpu-1"))
	c.grant(a, 1)
	now := m.settle(a.Name)
	if !now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != "30:00.0" {
		t.Fatalf("not shown: %+v", now.Status)
	}
	return c, m, now
}

func (m *machine) steer(method string, params any) {
	m.t.Helper()
	m.c.must(m.rpc.Call(m.t.Context(), method, params, nil))
}

// untilSwept makes rounds until nothing is left on the DPU.
func (m *machine) untilSwept() {
	m.t.Helper()
	for range 6 {
		m.c.must(m.patrol.Round(m.t.Context()))
		m.clock.Step(11 * time.Second)
	}
	m.wantEmpty()
	functions, err := m.rpc.EmulationFunctionList(m.t.Context())
	m.c.must(err)
	for _, f := range functions {
		if f.Hotplugged {
			m.t.Fatalf("a function is left: %+v", f)
		}
	}
}

// TestHotplugCrashAtEachCall: the driver dies at a call for hot-plug, of which
// it never hears whether it had an effect. What that leaves is swept.
func TestHotplugCrashAtEachCall(t *testing.T) {
	for _, method := range []string{
		"rpc_get_methods", "nvme_function_create", "nvme_controller_create", "nvme_controller_hotplug",
		"nvme_controller_hotunplug", "nvme_controller_destroy", "nvme_function_destroy", "emulation_function_list",
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(method+" "+when, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				m := newMachine(t, c, "dpu-1")
				m.inject(map[string]any{"method": method, "when": when, "drop": true})
				c.volume("v1", corev1.ReadWriteOnce)
				a := c.plug(c.attachment("v1", "dpu-1"))
				c.grant(a, 1)
				await := func(done func(*storagev1alpha1.VolumeAttachment) bool) *storagev1alpha1.VolumeAttachment {
					for range 30 {
						if err := m.pass(a.Name); err != nil {
							m.restartDriver()
						}
						if now := c.get(a.Name); done(now) {
							return now
						}
					}
					t.Fatalf("does not converge: %+v", c.get(a.Name))
					return nil
				}
				now := await(func(a *storagev1alpha1.VolumeAttachment) bool { return a.Status.DPU.Attached })
				if e := m.shown()[now.Status.DPU.DeviceName]; !e.Visible || e.UUID != now.Status.DPU.BdevAttrs.NVMeUUID {
					t.Fatalf("status %+v, the host sees %+v", now.Status.DPU, e)
				}
				c.must(c.Delete(t.Context(), now))
				await(func(a *storagev1alpha1.VolumeAttachment) bool { return a == nil })
				if m.calls(method) == 0 {
					t.Fatal("never called")
				}
				m.untilSwept()
			})
		}
	}
}

// TestHotplugFenceDoesNotWait: the receipt is written though the host hangs and
// does not let go of the function; what is left goes when the host does.
func TestHotplugFenceDoesNotWait(t *testing.T) {
	c, m, a := plugged(t)
	m.steer("moor_host", map[string]any{"answers": false})
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-1", Attachment: a.Name, Epoch: 1})
	c.must(m.pass(a.Name))
	now := c.get(a.Name)
	if now.Status.DPU.RetiredEpoch != 1 || now.Status.DPU.Attached {
		t.Fatalf("no receipt: %+v", now.Status)
	}
	if e := m.shown()[a.Status.DPU.DeviceName]; e.Visible || e.Hidden {
		t.Fatalf("the host sees %+v", e)
	}
	c.must(c.Delete(t.Context(), now))
	c.must(m.pass(a.Name))
	if c.get(a.Name) != nil {
		t.Fatal("the attachment waits for a host that hangs")
	}
	m.steer("moor_host", map[string]any{"answers": true})
	m.untilSwept()
}

// TestHotplugReplica: a function is plugged in for a replica and shows nothing;
// the promotion attaches the namespace and plugs in nothing.
func TestHotplugReplica(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.plug(c.attachment("v1", "dpu-1"))
	c.role(a.Name, storagev1alpha1.RoleReplica)
	now := m.settle(a.Name)
	if !now.Status.DPU.PreEmulated || now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != "30:00.0" {
		t.Fatalf("replica: %+v", now.Status)
	}
	c.role(a.Name, storagev1alpha1.RolePrimary)
	c.grant(now, 1)
	now = m.settle(a.Name)
	if !now.Status.DPU.Attached || m.calls("nvme_controller_hotplug") != 1 || m.calls("nvme_controller_attach_ns") != 1 {
		t.Fatalf("promoted: %+v", now.Status)
	}
}

// TestHotplugHostIsOff: an attachment is never ready with the address 00:00.0.
func TestHotplugHostIsOff(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	m.steer("moor_link", map[string]any{"up": false})
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.plug(c.attachment("v1", "dpu-1"))
	c.grant(a, 1)
	for range 4 {
		_ = m.pass(a.Name) // fails until the host is there
	}
	now := c.get(a.Name)
	if now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != "" || !strings.Contains(now.Status.Message, "has not enumerated the function") {
		t.Fatalf("with the host off: %+v", now.Status)
	}
	m.steer("moor_link", map[string]any{"up": true})
	if now = m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != "30:00.0" {
		t.Fatalf("with the host up: %+v", now.Status)
	}
	m.steer("moor_link", map[string]any{"up": false})
	_ = m.pass(a.Name)
	if now = c.get(a.Name); now.Status.DPU.Attached {
		t.Fatalf("the host lost power: %+v", now.Status)
	}
	m.steer("moor_link", map[string]any{"up": true})
	if now = m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != "30:00.0" {
		t.Fatalf("with the host up again: %+v", now.Status)
	}
}

// TestHotplugOverRestartOfSNAP: the same function again, and the ledger right.
func TestHotplugOverRestartOfSNAP(t *testing.T) {
	c, m, a := plugged(t)
	before := a.Status.DPU
	m.emu.Restart()
	if got := m.freePlugs(); got != 31 {
		t.Fatalf("%d ports are free: a function without a controller is", got)
	}
	now := m.settle(a.Name)
	if now.Status.DPU.PCIDeviceAddress != before.PCIDeviceAddress || *now.Status.DPU.BdevAttrs != *before.BdevAttrs || !now.Status.DPU.Attached {
		t.Fatalf("before %+v, after %+v", before, now.Status.DPU)
	}
	if got := m.freePlugs(); got != 30 {
		t.Fatalf("%d ports are free with one volume", got)
	}
	m.clock.Step(drainTime)
	c.must(c.Delete(t.Context(), now))
	c.must(m.pass(a.Name))
	m.untilSwept()
}

func (m *machine) freePlugs() int64 {
	m.t.Helper()
	state, err := m.reporter.State(m.t.Context())
	m.c.must(err)
	for _, f := range state.Functions {
		if f.Type == moorv1alpha1.FunctionHotplug {
			return f.Free
		}
	}
	return -1
}

// TestWhatTheHostLetsGoOfIsRemoved: a function that was withdrawn goes as soon as the host lets
// go of it, long before the next round, and that one is free is told.
func TestWhatTheHostLetsGoOfIsRemoved(t *testing.T) {
	c, m, a := plugged(t)
	m.steer("moor_host", map[string]any{"answers": false})
	c.must(c.Delete(t.Context(), a))
	if now := m.settle(a.Name); now != nil || m.freePlugs() != 30 {
		t.Fatalf("%d ports are free, and the attachment is %+v", m.freePlugs(), now)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.patrol.Start(ctx) }()
	defer func() {
		cancel()
		c.must(<-done)
	}()
	step := func() bool {
		waits := m.clock.Waiters() > 1 // for the next round, and for the host
		if waits {
			m.clock.Step(200 * time.Millisecond)
		}
		return waits
	}
	for steps := 0; steps < 10; {
		if step() {
			steps++
		}
	}
	if got := m.freePlugs(); got != 30 {
		t.Fatalf("%d ports are free, and the host has the function", got)
	}
	select {
	case <-m.changed.C(): // that of the withdrawal
	default:
	}
	m.steer("moor_host", map[string]any{"answers": true})
	for left := 35; m.freePlugs() != 31; { // less than a round
		if step() {
			left--
		}
		if left == 0 {
			t.Fatal("the function stays")
		}
	}
	<-m.changed.C()
}

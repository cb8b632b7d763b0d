package dpu

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

var errCrash = errors.New("crash")

// life attaches and detaches a volume, with the driver restarted whenever a
// pass fails, and checks both ends.
func life(t *testing.T, c *cluster, m *machine) {
	t.Helper()
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	live := func() *storagev1alpha1.VolumeAttachment {
		for range 30 {
			if err := m.pass(a.Name); err != nil {
				m.restartDriver()
				continue
			}
			now := c.get(a.Name)
			if now == nil || (now.DeletionTimestamp.IsZero() && now.Status.DPU.Attached) {
				return now
			}
		}
		t.Fatalf("does not converge: %+v", c.get(a.Name))
		return nil
	}
	now := live()
	e := m.shown()[now.Status.DPU.DeviceName]
	if !e.Visible || e.UUID != now.Status.DPU.BdevAttrs.NVMeUUID || e.PCIAddress != now.Status.DPU.PCIDeviceAddress {
		t.Fatalf("status %+v, the host sees %+v", now.Status.DPU, e)
	}
	c.must(c.Delete(t.Context(), now))
	if now = live(); now != nil {
		t.Fatalf("still there: %+v", now)
	}
	m.wantEmpty()
}

// TestCrashAtEachWrite: the driver dies at its n-th write to the API server,
// before or after that has its effect.
func TestCrashAtEachWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			struck := false
			t.Run(fmt.Sprintf("write %d, after %v", n, after), func(t *testing.T) {
				c := newCluster(t)
				m := newMachine(t, c, "dpu-1")
				writes := 0
				c.onWrite = func(_ string, effect func() error) error {
					if writes++; writes != n {
						return effect()
					}
					struck = true
					if after {
						c.must(effect())
					}
					return errCrash
				}
				life(t, c, m)
			})
			if !struck {
				if n < 6 {
					t.Fatalf("a life has %d writes only", n-1)
				}
				break
			}
		}
	}
}

// TestCrashAtEachCall: the driver dies at a call to SNAP, of which it never
// hears whether it had an effect.
func TestCrashAtEachCall(t *testing.T) {
	for _, method := range []string{
		"nvme_subsystem_list", "nvme_subsystem_create", "nvme_namespace_create", "emulation_function_list", "nvme_controller_create",
		"nvme_controller_attach_ns", "nvme_controller_resume", "nvme_controller_detach_ns", "nvme_controller_destroy",
		"nvme_namespace_destroy", "nvme_subsystem_destroy", "bdev_null_create", "bdev_null_delete", "bdev_get_bdevs",
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(method+" "+when, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				m := newMachine(t, c, "dpu-1")
				m.inject(map[string]any{"method": method, "when": when, "drop": true})
				life(t, c, m)
				if m.calls(method) == 0 {
					t.Fatal("never called")
				}
			})
		}
	}
}

// TestCrashAtEachVerb: the vendor's plugin fails once, at each of its verbs.
func TestCrashAtEachVerb(t *testing.T) {
	for _, verb := range []string{"Info", "Probe", "Capabilities", "Provider", "CreateDevice", "GetDevice", "DeleteDevice"} {
		for _, when := range []string{"", " after"} {
			t.Run(verb+when, func(t *testing.T) {
				c := newCluster(t)
				m := newMachine(t, c, "dpu-1")
				m.vendor.fail[verb+when] = fmt.Errorf("%w: %w", errCrash, provisioner.ErrUnavailable)
				life(t, c, m)
				if len(m.vendor.fail) != 0 {
					t.Fatal("the fault did not strike")
				}
			})
		}
	}
}

package snap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
	"github.com/moor-storage/moor/reference/snapemulator"
)

func shared(device string) provisioner.ExposeSpec {
	return provisioner.ExposeSpec{Device: device, Mode: provisioner.Filesystem, FunctionType: provisioner.PF, Hotplug: true}
}

func (s *testService) addFS(name string) {
	s.t.Helper()
	s.call("fsdev_aio_create", map[string]any{"name": name, "root_path": s.t.TempDir()})
}

// fsUp and fsDown are the calls of an exposure and of a withdrawal that change
// something, in DPF's order but for the function, which is made for a device.
var (
	fsUp = []string{
		"virtio_fs_transport_create", "virtio_fs_doca_manager_create", "virtio_fs_transport_start", "virtio_fs_device_create",
		"virtio_fs_doca_function_create", "virtio_fs_doca_device_modify", "virtio_fs_device_start", "virtio_fs_doca_device_hotplug",
	}
	fsDown = []string{"virtio_fs_doca_device_hotunplug", "virtio_fs_device_stop", "virtio_fs_device_destroy", "virtio_fs_doca_function_destroy"}
)

var fsReads = []string{
	"virtio_fs_get_transports", "virtio_fs_doca_get_possible_managers", "virtio_fs_doca_get_managers",
	"virtio_fs_doca_get_functions", "virtio_fs_get_devices",
}

func TestContractFilesystem(t *testing.T) {
	provisionertest.TestDPU(t, func(t *testing.T) provisionertest.DPUUnderTest {
		s := hotplugService(t, snapemulator.FamilySNAP, 0)
		return provisionertest.DPUUnderTest{
			DPU: New(s.rpc, service.Options{HotplugLimit: 4}),
			Prepare: func(_ *testing.T, name string) provisioner.ExposeSpec {
				s.addFS(name)
				return shared(name)
			},
		}
	})
}

func TestFilesystemOrder(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	s.addFS("vol")
	d := New(s.rpc, service.Options{})
	e, err := d.Expose(t.Context(), shared("vol"))
	if err != nil {
		t.Fatal(err)
	}
	want := provisioner.Exposure{Device: "vol", Tag: "voltag", PCIAddress: e.PCIAddress, VUID: e.VUID, Visible: true}
	if diff := cmp.Diff(want, e); diff != "" || e.VUID == "" {
		t.Fatal(diff)
	}
	devices, err := s.rpc.VirtioFSDevices(t.Context())
	if err != nil || len(devices) != 1 || devices[0].Name != "dev_vol" {
		t.Fatalf("%+v, %v", devices, err)
	}
	if err := d.Withdraw(t.Context(), "vol"); err != nil {
		t.Fatal(err)
	}
	s.sweep(d)
}

// TestFilesystemCallOrder holds the calls that change something to their order,
// both ways: while one fails for good, no later one is made.
func TestFilesystemCallOrder(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	s.addFS("vol")
	d := New(s.rpc, service.Options{PlugWait: time.Millisecond})
	expose := func() error { _, err := d.Expose(t.Context(), shared("vol")); return err }
	for _, way := range []struct {
		methods []string
		act     func() error
	}{{fsUp, expose}, {fsDown, func() error { return d.Withdraw(t.Context(), "vol") }}} {
		before := s.calls()
		for i, method := range way.methods {
			s.inject(map[string]any{"method": method, "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
			// A device that cannot be unplugged may be out, and a function
			// that stays is no part of it.
			tolerated := method == "virtio_fs_doca_device_hotunplug" || method == "virtio_fs_doca_function_destroy"
			if err := way.act(); err == nil && !tolerated {
				t.Fatalf("success with %s failing", method)
			}
			calls := s.calls()
			for _, later := range way.methods[i+1:] {
				if calls[later] != before[later] && !tolerated && !slices.Contains(fsDown, later) {
					t.Fatalf("%s was called before %s", later, method)
				}
			}
			s.call("moor_clear", nil)
		}
		if err := way.act(); err != nil {
			t.Fatal(err)
		}
	}
	s.sweep(d)
}

// TestFilesystemFaults lets every call go wrong in every way: the repeated call
// converges, for the same process and for one that has just started, and nothing
// is left at the end.
func TestFilesystemFaults(t *testing.T) {
	telling := []string{"refused before", "hang after", "drop before"}
	for _, method := range slices.Concat(fsUp, fsDown, fsReads) {
		for kind, fault := range faultKinds {
			if slices.Contains(fsReads, method) && !slices.Contains(telling, kind) || kind == "hang before" {
				continue // a read that hangs does so the same way, before and after
			}
			for _, restarts := range []bool{false, true} {
				if restarts && !slices.Contains(telling, kind) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%t", method, kind, restarts), func(t *testing.T) {
					t.Parallel()
					full := map[string]any{"method": method}
					maps.Copy(full, fault)
					filesystemLife(t, full, restarts)
				})
			}
		}
	}
}

// filesystemLife takes a device through all of its life, and strikes each part
// of it with the fault; a process that restarts forgets what it knew.
func filesystemLife(t *testing.T, fault map[string]any, restarts bool) {
	t.Helper()
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	s.addFS("vol")
	rpc := s.clientFor(fault)
	d := New(rpc, service.Options{})
	spec := shared("vol")
	again := func() *DPU {
		if restarts {
			d = New(rpc, service.Options{})
		}
		return d
	}
	for _, hidden := range []bool{true, false} {
		spec.Hidden = hidden
		s.inject(fault)
		s.untilDone(func() error {
			e, err := again().Expose(t.Context(), spec)
			if err == nil && (e.Hidden != hidden || e.Visible == hidden || e.Tag != "voltag" || e.VUID == "") {
				t.Errorf("hidden is %v, got %+v", hidden, e)
			}
			return err
		})
		s.call("moor_clear", nil)
	}
	s.inject(fault)
	s.untilDone(func() error { return again().Withdraw(t.Context(), "vol") })
	s.call("moor_clear", nil)
	s.sweep(d)
}

// TestFilesystemOfASlowHost: a host that takes its time has the device in the
// end, whether or not the process that asked is still there.
func TestFilesystemOfASlowHost(t *testing.T) {
	host := slowHost{enumerates: make(chan func(), 8)}
	s := serviceWith(t, snapemulator.Options{Clock: host, Hotplug: snapemulator.Hotplug{Slots: 4, Family: snapemulator.FamilySNAP, Delay: time.Hour}})
	s.addFS("vol")
	d := New(s.rpc, service.Options{PlugWait: 50 * time.Millisecond})
	_, err := d.Expose(t.Context(), shared("vol"))
	if !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v while the host enumerates", err)
	}
	(<-host.enumerates)()
	if e, err := d.Expose(t.Context(), shared("vol")); err != nil || !e.Visible {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := d.Withdraw(t.Context(), "vol"); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("withdrawn before the host has let go: %v", err)
	}
	(<-host.enumerates)()
	if err := d.Withdraw(t.Context(), "vol"); err != nil {
		t.Fatal(err)
	}
	s.sweep(d)
}

// slowHost is the clock of a host that looks at its PCI switch when the test lets it.
type slowHost struct {
	clock.RealClock
	enumerates chan func()
}

func (h slowHost) AfterFunc(d time.Duration, look func()) clock.Timer {
	h.enumerates <- look
	return h.NewTimer(d)
}

// TestFilesystemOfADeadHost: without power a host cannot hold a withdrawal up; a
// host that hangs can, as nothing proves that its I/O has ended.
func TestFilesystemOfADeadHost(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	s.addFS("vol")
	d := New(s.rpc, service.Options{PlugWait: 50 * time.Millisecond})
	if _, err := d.Expose(t.Context(), shared("vol")); err != nil {
		t.Fatal(err)
	}
	s.call("moor_host", map[string]any{"answers": false})
	if err := d.Withdraw(t.Context(), "vol"); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "has not let go") {
		t.Fatalf("withdrawn from a host that hangs: %v", err)
	}
	s.call("moor_link", map[string]any{"up": false})
	if err := d.Withdraw(t.Context(), "vol"); err != nil {
		t.Fatalf("not withdrawn from a host without power: %v", err)
	}
	s.call("moor_host", map[string]any{"answers": true})
	s.sweep(d)
}

// TestFilesystemIsFoundAgain: after a restart of this process or of the service,
// the device comes back on the function that is on record.
func TestFilesystemIsFoundAgain(t *testing.T) {
	for name, restart := range map[string]func(*testService){"driver": func(*testService) {}, "service": func(s *testService) { s.emu.Restart() }} {
		t.Run(name, func(t *testing.T) {
			s := hotplugService(t, snapemulator.FamilySNAP, 0)
			first := map[string]provisioner.Exposure{}
			for _, v := range []string{"a", "b", "c"} {
				s.addFS(v)
				e, err := New(s.rpc, service.Options{}).Expose(t.Context(), shared(v))
				if err != nil {
					t.Fatal(err)
				}
				first[v] = e
			}
			restart(s)
			recorded := map[string]string{}
			for v, e := range first {
				recorded[v] = e.VUID
				if name == "service" {
					s.addFS(v)
				}
			}
			d := New(s.rpc, service.Options{Recorded: func(context.Context) map[string]string { return recorded }})
			for _, v := range []string{"c", "a", "b"} {
				spec := shared(v)
				spec.VUID, spec.PCIAddress = first[v].VUID, first[v].PCIAddress
				e, err := d.Expose(t.Context(), spec)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(first[v], e); diff != "" {
					t.Fatal(diff)
				}
			}
			s.sweep(d)
		})
	}
}

// TestFilesystemWithdrawnAfterARestart: a file system that is withdrawn before the
// service has its device again leaves its function with the host, and comes back
// on that one.
func TestFilesystemWithdrawnAfterARestart(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	s.addFS("vol")
	recorded := map[string]string{}
	d := New(s.rpc, service.Options{Recorded: func(context.Context) map[string]string { return recorded }})
	first, err := d.Expose(t.Context(), shared("vol"))
	if err != nil {
		t.Fatal(err)
	}
	recorded["vol"] = first.VUID
	s.emu.Restart()
	if err := d.Withdraw(t.Context(), "vol"); err != nil {
		t.Fatal(err)
	}
	clear(recorded) // the attachment is gone
	s.addFS("vol")
	again, err := d.Expose(t.Context(), shared("vol"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Fatal(diff)
	}
	s.sweep(d)
}

func TestFilesystemRefusals(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	s.addFS("taken")
	d := New(s.rpc, service.Options{})
	if _, err := d.Expose(t.Context(), shared("taken")); err != nil {
		t.Fatal(err)
	}
	s.addFS("theirs")
	s.call("virtio_fs_device_create", map[string]any{"transport_name": "DOCA", "dev_name": "their-dev", "tag": "x", "fsdev": "theirs"})
	for name, tc := range map[string]struct {
		change func(*provisioner.ExposeSpec)
		want   error
	}{
		"static function":  {func(s *provisioner.ExposeSpec) { s.Hotplug = false }, provisioner.ErrInvalid},
		"virtual function": {func(s *provisioner.ExposeSpec) { s.FunctionType, s.Hotplug = provisioner.VF, false }, provisioner.ErrInvalid},
		"long name":        {func(s *provisioner.ExposeSpec) { s.Device = strings.Repeat("x", 18) }, provisioner.ErrInvalid},
		"no queues": {func(s *provisioner.ExposeSpec) {
			s.Parameters = map[string]string{storagev1alpha1.ParameterRequestQueues: "0"}
		}, provisioner.ErrInvalid},
		"no fsdev":         {func(s *provisioner.ExposeSpec) { s.Device = "none" }, provisioner.ErrNotFound},
		"another's device": {func(s *provisioner.ExposeSpec) { s.Device = "theirs" }, provisioner.ErrPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			spec := shared("taken")
			tc.change(&spec)
			if _, err := d.Expose(t.Context(), spec); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
	if devices, err := s.rpc.VirtioFSDevices(t.Context()); err != nil || len(devices) != 2 {
		t.Fatalf("a refusal changed something: %+v, %v", devices, err)
	}
	plain := newService(t) // without virtio-fs
	if _, err := New(plain.rpc, service.Options{}).Expose(t.Context(), shared("vol")); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Fatalf("a service without virtio-fs: %v", err)
	}
}

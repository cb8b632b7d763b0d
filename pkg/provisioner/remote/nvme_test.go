package remote_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/provisioner/remote"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// Refusals of the service.
var (
	busy     = &snaprpc.Error{Code: snaprpc.CodeBusy, Message: "Device or resource busy"}
	internal = &snaprpc.Error{Code: snaprpc.CodeInternal, Message: "Failed to create fsdev"}
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fabric is a SNAP service and the storage that it reaches.
type fabric struct {
	*snapemulatortest.Service
	dir, state string
}

func newFabric(t *testing.T) *fabric {
	dir := t.TempDir()
	return &fabric{snapemulatortest.Start(t, snapemulator.Options{FabricDir: dir}), dir, t.TempDir()}
}

func (f *fabric) host() *remote.NVMe { return remote.NewNVMe(f.Client, f.state) }

// volume makes a subsystem and returns how the node driver asks for it.
func (f *fabric) volume(t *testing.T, name string) provisioner.OpenSpec {
	t.Helper()
	nqn := "nqn.2020-04.io.spdk.csi:uuid:" + name
	if err := errors.Join(os.WriteFile(filepath.Join(f.dir, nqn+".img"), nil, 0o600), os.Truncate(filepath.Join(f.dir, nqn+".img"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	return provisioner.OpenSpec{
		VolumeID: name, Mode: provisioner.Block,
		VolumeContext: map[string]string{"targetType": "tcp", "targetAddr": "192.0.2.7", "targetPort": "4420", "nqn": nqn},
	}
}

// elsewhere connects to the volume's subsystem in another's name.
func (f *fabric) elsewhere(t *testing.T, name string, spec provisioner.OpenSpec) {
	t.Helper()
	if _, err := f.BdevNvmeAttachController(t.Context(), name, snaprpc.TransportID{
		TrType: "nvda_tcp", AdrFam: "IPv4", TrAddr: "192.0.2.7", TrSvcID: "4420", SubNQN: spec.VolumeContext["nqn"],
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fabric) controllers(t *testing.T) []string {
	t.Helper()
	all, err := f.BdevNvmeGetControllers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, c := range all {
		out = append(out, c.Name)
	}
	return out
}

func TestNVMeKeepsTheContract(t *testing.T) {
	f := newFabric(t)
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		f.Restart() // connections do not outlive the service
		f.state = t.TempDir()
		return provisionertest.HostUnderTest{Host: f.host(), Prepare: f.volume}
	})
}

func TestNVMeOpensAsNVIDIADoes(t *testing.T) {
	f := newFabric(t)
	spec := f.volume(t, "pvc-1-pvc")
	d, err := f.host().Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := (provisioner.Device{VolumeID: "pvc-1-pvc", Name: "nvme_pvc-1-pvcn1", Mode: provisioner.Block}); d != want {
		t.Fatalf("got %+v, want %+v", d, want)
	}
	bdevs, err := f.BdevGetBdevs(t.Context(), d.Name)
	want := []snaprpc.NVMeBdev{{TrID: snaprpc.TransportID{
		TrType: "NVDA_TCP", AdrFam: "IPv4", TrAddr: "192.0.2.7", TrSvcID: "4420", SubNQN: spec.VolumeContext["nqn"],
	}}}
	if err != nil || len(bdevs) != 1 || bdevs[0].SizeBytes() != 1<<20 {
		t.Fatalf("snap shows %+v, %v", bdevs, err)
	}
	if diff := cmp.Diff(want, bdevs[0].DriverSpecific.NVMe); diff != "" {
		t.Fatal(diff)
	}
	if left, _ := os.ReadDir(f.state); len(left) != 0 {
		t.Fatalf("%d records of a device whose name says whose it is", len(left))
	}
}

func TestNVMeUsesAConnectionThatIsThere(t *testing.T) {
	f := newFabric(t)
	spec := f.volume(t, "v")
	f.elsewhere(t, "Nvme0", spec)
	if all, err := f.host().List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("a foreign connection is a volume's: %+v, %v", all, err)
	}
	d, err := f.host().Open(t.Context(), spec)
	if err != nil || d.Name != "Nvme0n1" {
		t.Fatalf("opened %+v, %v; want the device that is there", d, err)
	}
	again := f.host() // as after a restart
	if got, err := again.Lookup(t.Context(), "v"); err != nil || got != d {
		t.Fatalf("looked up %+v, %v", got, err)
	}
	if all, err := again.List(t.Context()); err != nil || len(all) != 1 || all[0] != d {
		t.Fatalf("listed %+v, %v", all, err)
	}
	other := f.volume(t, "v")
	other.VolumeID = "w"
	if _, err := again.Open(t.Context(), other); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("a second volume over one subsystem: %v", err)
	}
	if err := again.Close(t.Context(), "v", d.Name); err != nil {
		t.Fatal(err)
	}
	if got := f.controllers(t); !cmp.Equal(got, []string{"Nvme0"}) {
		t.Fatalf("controllers after close: %q, want the one that was not made here", got)
	}
	if _, err := again.Lookup(t.Context(), "v"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("after close: %v", err)
	}
}

func TestNVMeRefusals(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bring func(*testing.T, *fabric, *provisioner.OpenSpec)
		want  error
	}{
		{"file system", func(_ *testing.T, _ *fabric, s *provisioner.OpenSpec) { s.Mode = provisioner.Filesystem }, provisioner.ErrUnsupported},
		{"no target", func(_ *testing.T, _ *fabric, s *provisioner.OpenSpec) { s.VolumeContext = nil }, provisioner.ErrInvalid},
		{"out of reach", func(_ *testing.T, _ *fabric, s *provisioner.OpenSpec) { s.VolumeContext["nqn"] = "nqn.absent" }, provisioner.ErrUnavailable},
		{"moved while it is open", func(t *testing.T, f *fabric, s *provisioner.OpenSpec) {
			if _, err := f.host().Open(t.Context(), *s); err != nil {
				t.Fatal(err)
			}
			s.VolumeContext["nqn"] = f.volume(t, "other").VolumeContext["nqn"]
		}, provisioner.ErrExists},
		{"same subsystem by another path", func(t *testing.T, f *fabric, s *provisioner.OpenSpec) {
			f.elsewhere(t, "Nvme0", *s)
			s.VolumeContext["targetAddr"] = "192.0.2.8"
		}, provisioner.ErrExists},
		{"service gone", func(_ *testing.T, f *fabric, _ *provisioner.OpenSpec) { f.Stop() }, provisioner.ErrUnavailable},
		{"no room", func(_ *testing.T, f *fabric, _ *provisioner.OpenSpec) {
			f.Inject(fault.Fault{Method: "bdev_nvme_attach_controller", Error: &snaprpc.Error{Code: -28, Message: "No space left on device"}})
		}, provisioner.ErrExhausted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFabric(t)
			spec := f.volume(t, "v")
			tc.bring(t, f, &spec)
			if _, err := f.host().Open(t.Context(), spec); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestNVMeLongNames(t *testing.T) {
	f := newFabric(t)
	spec := f.volume(t, "v")
	spec.VolumeID = strings.Repeat("long-", 40)
	d, err := f.host().Open(t.Context(), spec)
	if err != nil || len(d.Name) > 63 {
		t.Fatalf("opened %+v, %v", d, err)
	}
	if all, err := f.host().List(t.Context()); err != nil || len(all) != 1 || all[0] != d {
		t.Fatalf("listed %+v, %v; want %+v", all, err, d)
	}
	if err := f.host().Close(t.Context(), spec.VolumeID, ""); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(f.state)
	if got := fmt.Sprint(f.controllers(t), left); got != "[] []" {
		t.Fatalf("left after close: %s", got)
	}
}

func TestNVMeCloseOfAnotherDevice(t *testing.T) {
	f := newFabric(t)
	d, err := f.host().Open(t.Context(), f.volume(t, "v"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.host().Close(t.Context(), "v", "nvme_wn1"); err != nil {
		t.Fatal(err)
	}
	if got, err := f.host().Lookup(t.Context(), "v"); err != nil || got != d {
		t.Fatalf("closing a device that the volume does not have took %+v, %v", got, err)
	}
	f.Inject(fault.Fault{Method: "bdev_nvme_detach_controller", Error: busy})
	if err := f.host().Close(t.Context(), "v", d.Name); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("close of a device that is shown: %v", err)
	}
}

package hostdev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// domains is a host whose cards are in several PCI domains: at each address a
// physical function with that Vital Product Data, or "" for none, a driver, and
// namespace 1 with a UUID of the domain's digits.
func domains(t *testing.T, vpd map[string]string) *Finder {
	t.Helper()
	f := tree(t, nil)
	for addr, image := range vpd {
		function(t, f, addr, nvmeDriver)
		if image != "" {
			grow(t, f, map[string]string{"sys/bus/pci/devices/" + addr + "/vpd": image})
		}
		disk := "nvme" + addr[3:4]
		ns := "sys/bus/pci/devices/" + addr + "/nvme/" + disk + "/" + disk + "n1/"
		grow(t, f, map[string]string{ns + "nsid": "1\n", ns + "size": "8\n", ns + "uuid": uuidIn(addr) + "\n", "dev/" + disk + "n1": ""})
	}
	return f
}

// function makes a PCI function that a driver has, as the kernel shows it.
func function(t *testing.T, f *Finder, addr, driver string) {
	t.Helper()
	base := "sys/bus/pci/devices/" + addr + "/"
	grow(t, f, map[string]string{
		base + "vendor": "0x15b3\n", base + "driver_override": "",
		base + "driver": "-> ../../drivers/" + driver,
	})
	dir := f.Roots.sys("bus/pci/drivers", driver)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bind", "unbind"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../devices/"+addr, filepath.Join(dir, addr)); err != nil {
		t.Fatal(err)
	}
}

func uuidIn(addr string) string { return "00000000-0000-4000-8000-00000000" + addr[:4] }

func TestSeekByVUID(t *testing.T) {
	const (
		in0, in1, in4 = "0000:3b:00.2", "0001:3b:00.2", "0004:3b:00.2"
		elsewhere     = "0002:5e:00.2"
	)
	a, b, noVU := vpdWith("MT-A"), vpdWith("MT-B"), resource(vpdReadOnly, field("PN", "x"))+"\x78"
	for name, tc := range map[string]struct {
		vpd  map[string]string
		id   Identity
		want string // address, or words of the error
		err  error
	}{
		"in another domain":                      {map[string]string{in0: b, in4: a}, Identity{VUID: "MT-A"}, in4, nil},
		"in the first domain":                    {map[string]string{in0: a, in4: b}, Identity{VUID: "MT-A"}, in0, nil},
		"the only one, in another domain":        {map[string]string{in4: a}, Identity{VUID: "MT-A"}, in4, nil},
		"beside one without data":                {map[string]string{in0: "", in4: a}, Identity{VUID: "MT-A"}, in4, nil},
		"no VUID is given":                       {map[string]string{in0: b, in4: a}, Identity{}, in0, nil},
		"no data, one function":                  {map[string]string{in0: ""}, Identity{VUID: "MT-A"}, in0, nil},
		"data without VUID, one function":        {map[string]string{in0: noVU}, Identity{VUID: "MT-A"}, in0, nil},
		"broken data, one function":              {map[string]string{in0: "\xff\xff"}, Identity{VUID: "MT-A"}, in0, nil},
		"no data, and the other is another's":    {map[string]string{in0: "", in4: b}, Identity{VUID: "MT-A"}, in0, nil},
		"another's, and the other has no data":   {map[string]string{in0: b, in4: ""}, Identity{VUID: "MT-A"}, "not the one with VUID MT-A", ErrAbsent},
		"no data, in another domain":             {map[string]string{in4: ""}, Identity{VUID: "MT-A"}, "not the one with VUID MT-A", ErrAbsent},
		"another's":                              {map[string]string{in0: b}, Identity{VUID: "MT-A"}, "not the one with VUID MT-A", ErrAbsent},
		"another's, which begins the same":       {map[string]string{in0: vpdWith("MT-AB")}, Identity{VUID: "MT-A"}, "not the one with VUID", ErrAbsent},
		"two have it":                            {map[string]string{in1: a, in4: a}, Identity{VUID: "MT-A"}, "0001:3b:00.2, 0004:3b:00.2 have the same VUID", ErrAmbiguous},
		"two have it, and the UUID is at one":    {map[string]string{in1: a, in4: a}, Identity{VUID: "MT-A", UUID: uuidIn(in4)}, "the same VUID", ErrAmbiguous},
		"two without data":                       {map[string]string{in0: "", in4: noVU}, Identity{VUID: "MT-A"}, "have no VUID that can be read", ErrAmbiguous},
		"not there":                              {map[string]string{elsewhere: a}, Identity{VUID: "MT-A"}, "no PCI function", ErrAbsent},
		"its UUID too":                           {map[string]string{in0: b, in4: a}, Identity{VUID: "MT-A", UUID: uuidIn(in4)}, in4, nil},
		"its UUID is at another's":               {map[string]string{in0: b, in4: a}, Identity{VUID: "MT-A", UUID: uuidIn(in0)}, in0, nil},
		"another's UUID at its place":            {map[string]string{in0: b, in4: a}, Identity{VUID: "MT-A", UUID: uuidA}, "no namespace has UUID", ErrAbsent},
		"moved by a power cycle, by UUID":        {map[string]string{in0: b, elsewhere: a}, Identity{VUID: "MT-A", UUID: uuidIn(elsewhere)}, elsewhere, nil},
		"moved by a power cycle, without a UUID": {map[string]string{in0: b, elsewhere: a}, Identity{VUID: "MT-A"}, "not the one with VUID", ErrAbsent},
	} {
		t.Run(name, func(t *testing.T) {
			f := domains(t, tc.vpd)
			tc.id.Address, tc.id.NamespaceID = "3b:00.2", 1
			b, err := f.Seek(tc.id)
			switch {
			case tc.err == nil && (err != nil || b.Address != tc.want || b.UUID != uuidIn(tc.want)):
				t.Fatalf("got %+v, %v", b, err)
			case tc.err != nil && (!errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.want)):
				t.Fatalf("got %+v, %v", b, err)
			}
		})
	}
}

// TestVirtualFunctionHasItsPhysicalOnesVUID: one of its own does not count, as
// SNAP does not tell it.
func TestVirtualFunctionHasItsPhysicalOnesVUID(t *testing.T) {
	f := domains(t, map[string]string{"0000:3b:00.2": "", "0004:3b:00.2": vpdWith("MT-VF")})
	function(t, f, "0000:3b:00.0", nvmeDriver)
	function(t, f, "0004:3b:00.0", nvmeDriver)
	grow(t, f, map[string]string{
		"sys/bus/pci/devices/0000:3b:00.0/vpd": vpdWith("MT-0"), "sys/bus/pci/devices/0000:3b:00.2/physfn": "-> ../0000:3b:00.0",
		"sys/bus/pci/devices/0004:3b:00.0/vpd": vpdWith("MT-4"), "sys/bus/pci/devices/0004:3b:00.2/physfn": "-> ../0004:3b:00.0",
	})
	for vuid, want := range map[string]string{"MT-0": "0000:3b:00.2", "MT-4": "0004:3b:00.2", "MT-VF": ""} {
		b, err := f.Seek(Identity{Address: "3b:00.2", NamespaceID: 1, VUID: vuid})
		if b.Address != want || (want == "") != errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %+v, %v", vuid, b, err)
		}
	}
}

// TestNoDriverIsTakenFromAnothersFunction: at the DPU's address in the first
// domain there may be a network card.
func TestNoDriverIsTakenFromAnothersFunction(t *testing.T) {
	for name, vpd := range map[string][2]string{"another VUID": {vpdWith("MT-B"), vpdWith("MT-A")}, "none can be read": {"\xff", "\xff"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tree(t, map[string]string{
					"sys/bus/pci/devices/0000:3b:00.2/vpd": vpd[0], "sys/bus/pci/devices/0004:3b:00.2/vpd": vpd[1],
					"sys/bus/pci/drivers/nvme/bind": "", "sys/bus/pci/drivers/virtio-pci/bind": "",
				})
				function(t, f, "0000:3b:00.2", "mlx5_core")
				function(t, f, "0004:3b:00.2", "mlx5_core")
				f.Bind, f.BindShared = true, true
				id := Identity{Address: "3b:00.2", NamespaceID: 1, VUID: "MT-A"}
				for _, wait := range []func(context.Context) error{
					func(ctx context.Context) error { _, err := f.WaitFor(ctx, id); return err },
					func(ctx context.Context) error { return f.WaitShared(ctx, id) },
				} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if err := wait(ctx); err == nil {
						t.Error("found a device")
					}
					cancel()
					if got, _ := os.ReadFile(f.Roots.sys("bus/pci/drivers/mlx5_core/unbind")); strings.Contains(string(got), "0000:") {
						t.Errorf("%q was taken from the driver of another's function", got)
					}
				}
			})
		})
	}
}

func TestSharedByVUID(t *testing.T) {
	const at, moved = "0000:30:00.0", "0002:31:00.0"
	for name, tc := range map[string]struct {
		vpd  map[string]string
		want string
		err  error
	}{
		"in another domain":        {map[string]string{at: vpdWith("MT-B"), "0004:30:00.0": vpdWith("MT-A")}, "0004:30:00.0", nil},
		"moved":                    {map[string]string{at: vpdWith("MT-B"), moved: vpdWith("MT-A")}, moved, nil},
		"moved, its place is gone": {map[string]string{moved: vpdWith("MT-A")}, moved, nil},
		"no data":                  {map[string]string{at: ""}, at, nil},
		"moved twice":              {map[string]string{at: vpdWith("MT-B"), moved: vpdWith("MT-A"), "0003:31:00.0": vpdWith("MT-A")}, "", ErrAmbiguous},
		"another's":                {map[string]string{at: vpdWith("MT-B")}, "", ErrAbsent},
	} {
		t.Run(name, func(t *testing.T) {
			f := tree(t, nil)
			for addr, image := range tc.vpd {
				function(t, f, addr, virtioDriver)
				dir := f.device(addr)
				if err := os.WriteFile(filepath.Join(dir, "vendor"), []byte("0x1af4\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "vpd"), []byte(image), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			id := Identity{Address: "30:00.0", VUID: "MT-A"}
			got, err := f.locateShared(id)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v", got, err)
			}
			if err := f.SharedBy(id); !errors.Is(err, tc.err) {
				t.Errorf("shared: %v", err)
			}
		})
	}
}

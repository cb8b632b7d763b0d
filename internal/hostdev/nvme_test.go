package hostdev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree makes files under a new root: path -> content; a content that starts
// with "-> " is a symbolic link.
func tree(t *testing.T, files map[string]string) *Finder {
	t.Helper()
	root := t.TempDir()
	f := &Finder{Roots: Roots{Sysfs: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}}
	grow(t, f, files)
	return f
}

func grow(t *testing.T, f *Finder, files map[string]string) {
	t.Helper()
	for path, content := range files {
		full := filepath.Join(filepath.Dir(f.Roots.Sysfs), path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if link, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(link, full)
		} else {
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const (
	addr = "0000:3b:00.2"
	ctrl = "sys/bus/pci/drivers/nvme/" + addr + "/nvme/nvme0/"
	pci  = "sys/bus/pci/devices/" + addr + "/"
)

func TestNormalizeAddress(t *testing.T) {
	for in, want := range map[string]string{
		"3b:00.2": addr, "0000:3b:00.2": addr, " 0000:3B:00.2\n": addr,
		"10001:3b:00.2": "10001:3b:00.2", "0001:00:00.0": "0001:00:00.0",
		"00:00.0": "", "0000:00:00.0": "", "": "", "3b:00": "", "3b:00.8": "", "g0:00.0": "",
		"../../../etc": "", "0000:3b:00.2/..": "",
	} {
		got, err := NormalizeAddress(in)
		if want == "" {
			if !errors.Is(err, ErrAddress) {
				t.Errorf("%q: %q, %v, want ErrAddress", in, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

func FuzzNormalizeAddress(f *testing.F) {
	for _, s := range []string{"3b:00.2", "0000:3b:00.2", "", "00:00.0", "a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := NormalizeAddress(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(got, "/\\\x00 ") || filepath.Base(got) != got {
			t.Fatalf("%q became %q, which is no file name", s, got)
		}
		if again, err := NormalizeAddress(got); err != nil || again != got {
			t.Fatalf("%q became %q, then %q, %v", s, got, again, err)
		}
	})
}

func TestParseNamespaceID(t *testing.T) {
	for in, want := range map[string]int64{"1": 1, " 7\n": 7, "4294967294": 4294967294, "0": 0, "-1": 0, "": 0, "x": 0, "4294967295": 0} {
		got, err := ParseNamespaceID(in)
		if (want == 0) != errors.Is(err, ErrAddress) || got != want {
			t.Errorf("%q: %d, %v, want %d", in, got, err, want)
		}
	}
}

func TestFind(t *testing.T) {
	whole := map[string]string{ctrl + "nvme0n1/nsid": "1\n", ctrl + "nvme0n1/size": "2048\n", "dev/nvme0n1": ""}
	with := func(extra map[string]string, without ...string) map[string]string {
		out := map[string]string{}
		for k, v := range whole {
			out[k] = v
		}
		for _, k := range without {
			delete(out, k)
		}
		for k, v := range extra {
			out[k] = v
		}
		return out
	}
	for name, tc := range map[string]struct {
		files map[string]string
		nsid  int64
		disk  string
		size  int64
		words string
	}{
		"plain": {whole, 1, "nvme0n1", 1 << 20, ""},
		"second of two": {
			with(map[string]string{ctrl + "nvme0n2/nsid": "2", ctrl + "nvme0n2/size": "8", "dev/nvme0n2": ""}),
			2, "nvme0n2", 4096, "",
		},
		"multipath": {
			map[string]string{ctrl + "nvme0c1n1/nsid": "1", ctrl + "nvme0c1n1/size": "16", "dev/nvme0n1": ""},
			1, "nvme0n1", 8192, "",
		},
		"multipath, other instance": {
			map[string]string{ctrl + "nvme3c12n7/nsid": "5", ctrl + "nvme3c12n7/size": "16", "dev/nvme3n7": ""},
			5, "nvme3n7", 8192, "",
		},
		"beside strangers": {
			with(map[string]string{ctrl + "ng0n1/nsid": "1", ctrl + "power/nsid": "1", ctrl + "hwmon1/x": ""}),
			1, "nvme0n1", 1 << 20, "",
		},
		"not that namespace": {whole, 9, "", 0, "no namespace 9"},
		"size 0":             {with(map[string]string{ctrl + "nvme0n1/size": "0\n"}), 1, "", 0, "size 0"},
		"no size":            {with(nil, ctrl+"nvme0n1/size"), 1, "", 0, "size of namespace"},
		"no device file":     {with(nil, "dev/nvme0n1"), 1, "", 0, "no device file"},
		"no function":        {map[string]string{"dev/x": ""}, 1, "", 0, "no PCI function"},
		"unbound":            {map[string]string{pci + "vendor": "0x15b3"}, 1, "", 0, "bound to no driver"},
		"other driver":       {map[string]string{pci + "driver": "-> ../../drivers/vfio-pci"}, 1, "", 0, "vfio-pci"},
		"no controller yet":  {map[string]string{pci + "driver": "-> ../../drivers/nvme"}, 1, "", 0, "no controller yet"},
		"empty controllers":  {map[string]string{ctrl + "model": "x"}, 1, "", 0, "no namespace 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := tree(t, tc.files)
			got, err := f.Find("3b:00.2", tc.nsid)
			if tc.words != "" {
				if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), tc.words) {
					t.Fatalf("error %v, want ErrAbsent with %q", err, tc.words)
				}
				return
			}
			want := Block{Name: tc.disk, Path: filepath.Join(f.Roots.Dev, tc.disk), SizeBytes: tc.size, Address: addr, NamespaceID: tc.nsid}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestFindUUID: a UUID says whose namespace it is, in one spelling; the kernel
// shows one of zeros where there is none.
func TestFindUUID(t *testing.T) {
	const uuid, zeros = "a1111111-2222-4333-8444-55555555555f", "00000000-0000-0000-0000-000000000000"
	for name, c := range map[string]struct{ path, head, want string }{
		"of the path":              {uuid, "", uuid},
		"upper case":               {strings.ToUpper(uuid) + "\n", "", uuid},
		"none":                     {"", "", ""},
		"zeros":                    {zeros, "", ""},
		"of the multipath disk":    {"", uuid, uuid},
		"zeros, then of the disk":  {zeros, uuid, uuid},
		"zeros of path and disk":   {zeros, zeros, ""},
		"of both, the path counts": {uuid, "b" + uuid[1:], uuid},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{ctrl + "nvme0c1n1/nsid": "1", ctrl + "nvme0c1n1/size": "8", "dev/nvme0n1": ""}
			if c.path != "" {
				files[ctrl+"nvme0c1n1/uuid"] = c.path
			}
			if c.head != "" {
				files["sys/class/block/nvme0n1/uuid"] = c.head
			}
			got, err := tree(t, files).Find(addr, 1)
			if err != nil || got.UUID != c.want {
				t.Errorf("UUID %q, %v, want %q", got.UUID, err, c.want)
			}
		})
	}
}

// FuzzSysfs: whatever sysfs says of a namespace, what is found has a size, a
// name that stays in its directory, and the number that was asked for.
func FuzzSysfs(f *testing.F) {
	f.Add("nvme0n1", "1\n", "2048\n", "11111111-2222-4333-8444-555555555555\n", int64(1))
	f.Add("nvme0c1n1", "1", "16", "00000000-0000-0000-0000-000000000000", int64(1))
	f.Add("nvme0n1p1", "1", "-8", "", int64(1))
	f.Add("ng0n1", "0x1", "9223372036854775807", "X", int64(0))
	f.Fuzz(func(t *testing.T, name, nsid, size, uuid string, want int64) {
		if name == "" || len(name) > 100 || strings.ContainsAny(name, "/\x00") || strings.Trim(name, ".") == "" {
			t.Skip("no name of a directory")
		}
		finder := tree(t, map[string]string{ctrl + name + "/nsid": nsid, ctrl + name + "/size": size, ctrl + name + "/uuid": uuid})
		if m := namespaceName.FindStringSubmatch(name); m != nil {
			grow(t, finder, map[string]string{"dev/" + m[1] + m[2]: ""})
		}
		b, err := finder.Find(addr, want)
		if err != nil {
			if !errors.Is(err, ErrAbsent) {
				t.Fatal(err)
			}
			return
		}
		if b.SizeBytes <= 0 || b.NamespaceID != want || filepath.Dir(b.Path) != finder.Roots.Dev || b.UUID == noUUID || b.UUID != strings.ToLower(b.UUID) {
			t.Fatalf("%q with nsid %q, size %q, UUID %q was found as %+v", name, nsid, size, uuid, b)
		}
		list, err := finder.List()
		if diff := cmp.Diff([]Block{b}, list); err != nil || diff != "" {
			t.Fatalf("found and listed differ (%v):\n%s", err, diff)
		}
	})
}

func TestWaitUntilItAppears(t *testing.T) {
	f := tree(t, map[string]string{pci + "driver": "-> ../../drivers/nvme", "dev/null": ""})
	type answer struct {
		b   Block
		err error
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan answer)
	go func() {
		b, err := f.Wait(ctx, addr, 1)
		done <- answer{b, err}
	}()
	grow(t, f, map[string]string{"dev/nvme0n1": "", ctrl + "nvme0n1/size": "8", ctrl + "nvme0n1/nsid": "1"})
	if a := <-done; a.err != nil || a.b.Name != "nvme0n1" {
		t.Fatalf("%+v, %v", a.b, a.err)
	}
}

func TestWaitGivesUpInWords(t *testing.T) {
	f := tree(t, map[string]string{ctrl + "nvme0n1/nsid": "1", ctrl + "nvme0n1/size": "0"})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.Wait(ctx, addr, 1)
	if !errors.Is(err, ErrAbsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want ErrAbsent and DeadlineExceeded", err)
	}
	for _, want := range []string{addr, "size 0", "gave up after"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if _, err := f.Wait(t.Context(), "nonsense", 1); !errors.Is(err, ErrAddress) {
		t.Errorf("a bad address was waited for: %v", err)
	}
}

func TestWaitBindsTheDriver(t *testing.T) {
	f := tree(t, map[string]string{
		pci + "vendor": "0x15b3", pci + "driver_override": "(null)",
		"sys/bus/pci/drivers/nvme/bind": "", "dev/nvme0n1": "",
	})
	f.Bind = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Wait(ctx, addr, 1); !errors.Is(err, ErrAbsent) {
		t.Fatal(err)
	}
	for attr, want := range map[string]string{pci + "driver_override": "nvme", "sys/bus/pci/drivers/nvme/bind": addr} {
		got, err := os.ReadFile(filepath.Join(filepath.Dir(f.Roots.Sysfs), attr))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", attr, got, err, want)
		}
	}
}

func TestBindDriverTakesItFromAnother(t *testing.T) {
	f := tree(t, map[string]string{
		pci + "driver_override":               "",
		pci + "driver":                        "-> ../../drivers/vfio-pci",
		"sys/bus/pci/drivers/vfio-pci/unbind": "",
		"sys/bus/pci/drivers/nvme/bind":       "",
	})
	if err := f.BindDriver(t.Context(), addr, "nvme"); err != nil {
		t.Fatal(err)
	}
	for _, attr := range []string{"vfio-pci/unbind", "nvme/bind"} {
		got, _ := os.ReadFile(f.Roots.sys("bus/pci/drivers", attr))
		if string(got) != addr {
			t.Errorf("%s holds %q, want %q", attr, got, addr)
		}
	}
}

func TestBindDriverNotLoaded(t *testing.T) {
	f := tree(t, map[string]string{pci + "driver_override": ""})
	if err := f.BindDriver(t.Context(), addr, "nvme"); err == nil || !strings.Contains(err.Error(), "modprobe nvme") {
		t.Errorf("error %v, want one that says modprobe nvme", err)
	}
}

func TestStaleDeviceFileIsRefused(t *testing.T) {
	if err := compareNumber("nvme0n1", 7<<8, "259:0"); !errors.Is(err, ErrAbsent) {
		t.Errorf("another device's file was taken: %v", err)
	}
	if err := compareNumber("nvme0n1", 259<<8, "259:0"); err != nil {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	f := tree(t, map[string]string{
		ctrl + "nvme0n1/nsid": "1", ctrl + "nvme0n1/size": "8", "dev/nvme0n1": "",
		ctrl + "nvme0n2/nsid": "2", ctrl + "nvme0n2/size": "0", "dev/nvme0n2": "",
		"sys/bus/pci/drivers/nvme/0000:01:00.0/nvme/nvme1/nvme1c1n1/nsid": "1",
		"sys/bus/pci/drivers/nvme/0000:01:00.0/nvme/nvme1/nvme1c1n1/size": "8", "dev/nvme1n1": "",
	})
	list, err := f.List()
	if err != nil || len(list) != 2 || list[0].Name != "nvme1n1" || list[0].Address != "0000:01:00.0" || list[1].Name != "nvme0n1" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestVirtualFunctions(t *testing.T) {
	function := func(a, vendor, device string, more map[string]string) map[string]string {
		base := "sys/bus/pci/devices/" + a + "/"
		out := map[string]string{base + "vendor": vendor + "\n", base + "device": device + "\n", base + "driver": "-> ../../drivers/nvme"}
		for k, v := range more {
			out[base+k] = v
		}
		return out
	}
	f := tree(t, nil)
	if n, err := f.VirtualFunctions("6001"); n != 0 || err != nil {
		t.Errorf("a host without PCI: %d, %v", n, err)
	}
	grow(t, f, function("0000:3b:00.0", "0x15b3", "0x6001", map[string]string{"sriov_totalvfs": "16", "sriov_numvfs": "16"}))
	grow(t, f, function("0000:5e:00.0", "0x15b3", "0x6001", map[string]string{"sriov_totalvfs": "4", "sriov_numvfs": "0", "sriov_drivers_autoprobe": "1"}))
	grow(t, f, function("0000:5f:00.0", "0x15b3", "0x6001", map[string]string{"sriov_totalvfs": "8", "sriov_numvfs": "3"}))
	grow(t, f, function("0000:60:00.0", "0x15b3", "0x6001", nil)) // no SR-IOV
	grow(t, f, function("0000:3b:00.1", "0x15b3", "0x6001", map[string]string{"physfn": "-> ../0000:3b:00.0", "sriov_numvfs": "99"}))
	grow(t, f, function("0000:01:00.0", "0x8086", "0x6001", map[string]string{"sriov_numvfs": "99"}))
	grow(t, f, function("0000:02:00.0", "0x15b3", "0x1017", map[string]string{"sriov_numvfs": "99"}))
	if n, err := f.VirtualFunctions("0x6001"); n != 19 || err != nil {
		t.Fatalf("%d, %v, want 19", n, err)
	}
	if err := f.Prepare(t.Context(), "6001", true); err != nil {
		t.Fatal(err)
	}
	if n, err := f.VirtualFunctions("6001"); n != 23 || err != nil {
		t.Errorf("after Prepare: %d, %v, want 23: 0 is raised to the total, 3 of 8 is kept", n, err)
	}
}

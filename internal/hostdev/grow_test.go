package hostdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// superExt4 is the start of a device with an ext4 of that many blocks of
// 1024 << shift bytes.
func superExt4(blocks int64, shift uint32) []byte {
	b := make([]byte, 4096)
	s := b[1024:]
	binary.LittleEndian.PutUint32(s[0x4:], uint32(blocks))
	binary.LittleEndian.PutUint32(s[0x150:], uint32(blocks>>32))
	binary.LittleEndian.PutUint32(s[0x18:], shift)
	binary.LittleEndian.PutUint16(s[0x38:], 0xEF53)
	return b
}

func superXFS(blocks int64, blockSize uint32) []byte {
	b := make([]byte, 4096)
	copy(b, "XFSB")
	binary.BigEndian.PutUint32(b[4:], blockSize)
	binary.BigEndian.PutUint64(b[8:], uint64(blocks))
	return b
}

// script notes the programs that are run, and lets those named fail.
type script struct {
	ran  []string
	fail map[string]error
}

func (s *script) Run(_ context.Context, name string, args ...string) (string, error) {
	s.ran = append(s.ran, strings.Join(append([]string{name}, args...), " "))
	return "", s.fail[name]
}

const grownBytes = 9 << 20 // a file system may have 8 MiB of it

// device is a file of grownBytes that begins with the superblock given.
func device(t *testing.T, super []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	if err := errors.Join(os.WriteFile(path, super, 0o600), os.Truncate(path, grownBytes)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGrow(t *testing.T) {
	exit := func(program string, code int) map[string]error {
		return map[string]error{program: &ExitError{Program: program, Code: code}}
	}
	const check, resize = "e2fsck -f -p DEVICE", "resize2fs DEVICE 8192k"
	for name, c := range map[string]struct {
		super   []byte
		fsType  string
		mounted string
		fail    map[string]error
		ran     []string
		grown   bool
		err     bool
	}{
		"ext4":                          {super: superExt4(1024, 2), fsType: "ext4", ran: []string{check, resize}, grown: true},
		"ext4 that e2fsck repaired":     {super: superExt4(1024, 2), fsType: "ext4", fail: exit("e2fsck", 1), ran: []string{check, resize}, grown: true},
		"ext4 that it cannot repair":    {super: superExt4(1024, 2), fsType: "ext4", fail: exit("e2fsck", 4), ran: []string{check}, err: true},
		"ext4 repaired in part":         {super: superExt4(1024, 2), fsType: "ext4", fail: exit("e2fsck", 1|4), ran: []string{check}, err: true},
		"e2fsck that did not run":       {super: superExt4(1024, 2), fsType: "ext4", fail: exit("e2fsck", 8), ran: []string{check}, err: true},
		"e2fsck called wrongly":         {super: superExt4(1024, 2), fsType: "ext4", fail: exit("e2fsck", 16), ran: []string{check}, err: true},
		"e2fsck that was canceled":      {super: superExt4(1024, 2), fsType: "ext4", fail: exit("e2fsck", 32), ran: []string{check}, err: true},
		"e2fsck that is not there":      {super: superExt4(1024, 2), fsType: "ext4", fail: map[string]error{"e2fsck": os.ErrNotExist}, ran: []string{check}, err: true},
		"resize2fs that fails":          {super: superExt4(1024, 2), fsType: "ext4", fail: exit("resize2fs", 1), ran: []string{check, resize}, err: true},
		"ext4 with small blocks":        {super: superExt4(1024, 0), fsType: "ext4", ran: []string{check, resize}, grown: true},
		"ext4 that is large enough":     {super: superExt4(2048, 2), fsType: "ext4"},
		"ext4 that is larger":           {super: superExt4(4096, 2), fsType: "ext4"},
		"xfs in use":                    {super: superXFS(1024, 4096), fsType: "xfs", mounted: "/mnt", ran: []string{"xfs_growfs -D 2048 /mnt"}, grown: true},
		"xfs in use, growing fails":     {super: superXFS(1024, 4096), fsType: "xfs", mounted: "/mnt", fail: exit("xfs_growfs", 1), ran: []string{"xfs_growfs -D 2048 /mnt"}, err: true},
		"xfs not in use":                {super: superXFS(1024, 4096), fsType: "xfs"},
		"xfs that is large enough":      {super: superXFS(2048, 4096), fsType: "xfs", mounted: "/mnt"},
		"ext4 where xfs is said to be":  {super: superExt4(1024, 2), fsType: "xfs", mounted: "/mnt", err: true},
		"xfs where ext4 is said to be":  {super: superXFS(1024, 4096), fsType: "ext4", err: true},
		"a file system of another kind": {super: superXFS(1024, 4096), fsType: "btrfs", err: true},
	} {
		t.Run(name, func(t *testing.T) {
			path, s := device(t, c.super), &script{fail: c.fail}
			grown, err := (&Formatter{Runner: s}).Grow(t.Context(), path, c.fsType, c.mounted)
			if grown != c.grown || (err != nil) != c.err {
				t.Errorf("grown %t, %v; want %t, an error %t", grown, err, c.grown, c.err)
			}
			for i := range s.ran {
				s.ran[i] = strings.ReplaceAll(s.ran[i], path, "DEVICE")
			}
			if diff := cmp.Diff(c.ran, s.ran); diff != "" {
				t.Errorf("programs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGrowInUseWithoutPrivilege: the kernel refuses, so the program is not run.
func TestGrowInUseWithoutPrivilege(t *testing.T) {
	path, s := device(t, superExt4(1024, 2)), &script{}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and it ends with the goroutine, for it has lost a privilege
		err := withoutResource()
		if err == nil {
			_, err = (&Formatter{Runner: s}).Grow(t.Context(), path, "ext4", "/mnt")
		}
		done <- err
	}()
	if err := <-done; !errors.Is(err, ErrPrivilege) {
		t.Errorf("%v, want %v", err, ErrPrivilege)
	}
	if len(s.ran) != 0 {
		t.Errorf("ran %q", s.ran)
	}
}

// withoutResource takes CAP_SYS_RESOURCE from this thread.
func withoutResource() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	return unix.Capset(&header, &data[0])
}

func TestGrowOfWhatIsNotThere(t *testing.T) {
	f := &Formatter{Runner: &script{}}
	if _, err := f.Grow(t.Context(), filepath.Join(t.TempDir(), "gone"), "ext4", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no device: %v", err)
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Grow(t.Context(), short, "ext4", ""); err == nil || !strings.Contains(err.Error(), "superblock") {
		t.Errorf("a device of 100 bytes: %v", err)
	}
}

// FuzzParseSuper: what is read from a superblock makes sense, whatever the rest
// of the device holds, and what cannot be a superblock is refused.
func FuzzParseSuper(f *testing.F) {
	f.Add(superExt4(1024, 2), "ext4", int64(1024), uint32(2))
	f.Add(superXFS(1<<40, 4096), "xfs", int64(1)<<40, uint32(3))
	noXFS, noExt4 := superXFS(1024, 4096), superExt4(1024, 2)
	noXFS[3], noExt4[1024+0x38] = 'C', 0
	f.Add(noXFS, "xfs", int64(1), uint32(0))
	f.Add(noExt4, "ext4", int64(1)<<33, uint32(6))
	f.Add([]byte("XFSB"), "ext4", int64(-1), uint32(7))
	f.Add([]byte{}, "btrfs", int64(0), uint32(0))
	f.Fuzz(func(t *testing.T, device []byte, fsType string, blocks int64, shift uint32) {
		b := make([]byte, 4096)
		copy(b, device)
		have, size, err := parseSuper(b, fsType)
		if err != nil && (!errors.Is(err, ErrForeign) || have != 0 || size != 0) {
			t.Fatalf("refused with %d, %d, %v", have, size, err)
		}
		if err == nil {
			magic := map[string]bool{"xfs": string(b[:4]) == "XFSB", "ext4": b[1024+0x38] == 0x53 && b[1024+0x39] == 0xEF}
			if have <= 0 || size < 512 || size > 1<<16 || !magic[fsType] {
				t.Fatalf("a %s of %d blocks of %d bytes in %x", fsType, have, size, b[:64])
			}
		}
		blocks &= 1<<63 - 1
		for fsType, c := range map[string]struct {
			super []byte
			size  int64
		}{
			"ext4": {superExt4(blocks, shift%7), 1024 << (shift % 7)},
			"xfs":  {superXFS(blocks, 512<<(shift%8)), 512 << (shift % 8)},
		} {
			have, size, err := parseSuper(c.super, fsType)
			if blocks == 0 != (err != nil) || err == nil && (have != blocks || size != c.size) {
				t.Fatalf("%s of %d blocks of %d bytes was read as %d of %d, %v", fsType, blocks, c.size, have, size, err)
			}
		}
	})
}

// FuzzProbe: only a device of which blkid says nothing at all has no signature.
func FuzzProbe(f *testing.F) {
	for _, out := range []string{"", "\n", "DEVNAME=/dev/x\nTYPE=ext4\n", "PTTYPE=gpt\n", "DEVNAME=/dev/x\nPART_ENTRY_NUMBER=1\n", "TYPE=\n", "TYPE", "TYPE=a=b\nTYPE=c", "\x00", "type=ext4"} {
		f.Add(out, 0)
	}
	f.Add("TYPE=ext4\n", blkidAmbivalent)
	f.Add("", blkidNothing)
	f.Add("", 1)
	f.Fuzz(func(t *testing.T, out string, code int) {
		path := filepath.Join(t.TempDir(), "no-device")
		s, err := Probe(t.Context(), runnerFunc(func(string) (string, error) {
			if code != 0 {
				return out, &ExitError{Program: "blkid", Code: code}
			}
			return out, nil
		}), path)
		switch {
		case code == blkidAmbivalent:
			if err != nil || !s.Ambivalent {
				t.Fatalf("status %d: %+v, %v", code, s, err)
			}
		case code != 0: // nor is "nothing" believed of a device that cannot be read
			if err == nil {
				t.Fatalf("status %d: %+v and no error", code, s)
			}
		case err != nil:
			t.Fatal(err)
		case s.None() != (strings.TrimSpace(out) == ""):
			t.Fatalf("%q was read as %+v", out, s)
		case s.Type != "" && !strings.Contains(out, fmt.Sprintf("TYPE=%s", s.Type)):
			t.Fatalf("%q has no type %q", out, s.Type)
		}
	})
}

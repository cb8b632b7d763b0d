//go:build root

package hostdev

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/kit/needs"
)

// loopDevice makes a loop device over a new sparse file of size bytes.
func loopDevice(t *testing.T, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backing")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	dev := run(t, "losetup", "--find", "--show", file)
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", dev).Run() })
	return dev
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func digest(t *testing.T, dev string) string {
	t.Helper()
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func write(t *testing.T, dev string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(dev, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// mdSuperblock is the start of a Linux RAID superblock, version 1.2, with its
// checksum (drivers/md/md.c, calc_sb_1_csum): made here, as mdadm needs a
// kernel with md to make one.
func mdSuperblock() []byte {
	b := make([]byte, 4096)
	put := func(at int, v uint32) {
		for i := range 4 {
			b[at+i] = byte(v >> (8 * i))
		}
	}
	put(0, 0xa92b4efc) // magic
	put(4, 1)          // major version
	copy(b[16:], "a set of arrays!")
	put(144, 8) // super_offset in sectors: 4 KiB
	var sum uint64
	for i := 0; i < 256; i += 4 {
		sum += uint64(b[i]) | uint64(b[i+1])<<8 | uint64(b[i+2])<<16 | uint64(b[i+3])<<24
	}
	put(216, uint32(sum)+uint32(sum>>32))
	return b
}

// usedDevices are the ways a device can be in use; each makes one.
var usedDevices = []struct {
	name string
	make func(t *testing.T, dev string)
}{
	{"ext2", func(t *testing.T, d string) { run(t, "mkfs.ext2", "-q", "-F", d) }},
	{"ext3", func(t *testing.T, d string) { run(t, "mkfs.ext3", "-q", "-F", d) }},
	{"ext4", func(t *testing.T, d string) { run(t, "mkfs.ext4", "-q", "-F", d) }},
	{"xfs", func(t *testing.T, d string) { needs.Program(t, "mkfs.xfs"); run(t, "mkfs.xfs", "-q", "-f", d) }},
	{"btrfs", func(t *testing.T, d string) { needs.Program(t, "mkfs.btrfs"); run(t, "mkfs.btrfs", "-q", "-f", d) }},
	{"vfat", func(t *testing.T, d string) { needs.Program(t, "mkfs.vfat"); run(t, "mkfs.vfat", "-I", d) }},
	{"swap", func(t *testing.T, d string) { run(t, "mkswap", d) }},
	{"LVM physical volume", func(t *testing.T, d string) {
		needs.Program(t, "pvcreate")
		run(t, "pvcreate", "-ff", "-y", "--config", "devices{filter=[\"a|.*|\"] use_devicesfile=0} global{use_lvmpolld=0}", d)
	}},
	{"LUKS1", func(t *testing.T, d string) { luks(t, d, "luks1") }},
	{"LUKS2", func(t *testing.T, d string) { luks(t, d, "luks2") }},
	{"RAID 1.2", func(t *testing.T, d string) { write(t, d, 4096, mdSuperblock()) }},
	{"GPT", func(t *testing.T, d string) { partition(t, d, "label: gpt\n,\n") }},
	{"MBR", func(t *testing.T, d string) { partition(t, d, "label: dos\n,\n") }},
	{"empty GPT", func(t *testing.T, d string) { partition(t, d, "label: gpt\n") }},
	{"LVM signature alone", func(t *testing.T, d string) { write(t, d, 512, []byte("LABELONE")) }},
	{"text at the start", func(t *testing.T, d string) { write(t, d, 0, []byte("the only copy")) }},
	{"one byte in the first MiB", func(t *testing.T, d string) { write(t, d, 777777, []byte{1}) }},
	{"one byte in the middle", func(t *testing.T, d string) { write(t, d, windows(deviceBytes)[20].offset, []byte{1}) }},
	{"one byte at the end", func(t *testing.T, d string) { write(t, d, deviceBytes-1, []byte{1}) }},
}

const deviceBytes = 320 << 20

func luks(t *testing.T, dev, kind string) {
	needs.Program(t, "cryptsetup")
	cmd := exec.Command("cryptsetup", "luksFormat", "--batch-mode", "--type", kind, "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", dev, "-")
	cmd.Stdin = strings.NewReader("passphrase")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cryptsetup: %v: %s", err, out)
	}
}

func partition(t *testing.T, dev, script string) {
	needs.Program(t, "sfdisk")
	cmd := exec.Command("sfdisk", "--quiet", "--no-reread", dev)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sfdisk: %v: %s", err, out)
	}
}

func TestUsedDeviceIsNeverFormatted(t *testing.T) {
	f := &Formatter{Runner: Commands{}}
	for _, used := range usedDevices {
		t.Run(used.name, func(t *testing.T) {
			dev := loopDevice(t, deviceBytes)
			used.make(t, dev)
			before := digest(t, dev)
			for _, want := range []string{"ext4", "xfs"} {
				made, err := f.Ensure(t.Context(), dev, want, false)
				switch {
				case made:
					t.Errorf("%s: a used device was formatted", want)
				case used.name == want && err != nil:
					t.Errorf("%s was not used as it is: %v", want, err)
				case used.name != want && !errors.Is(err, ErrForeign):
					t.Errorf("wanted %s: error %v, want ErrForeign", want, err)
				}
			}
			if digest(t, dev) != before {
				t.Error("the device was written to")
			}
		})
	}
}

func TestFormatMountReadBack(t *testing.T) {
	f := &Formatter{Runner: Commands{}}
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			needs.Program(t, "mkfs."+fs)
			dev, dir := loopDevice(t, deviceBytes), t.TempDir()
			if made, err := f.Ensure(t.Context(), dev, fs, false); err != nil || !made {
				t.Fatalf("made %t, %v", made, err)
			}
			if err := unix.Mount(dev, dir, fs, 0, ""); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := openExclusive(dev); !errors.Is(err, ErrBusy) {
				t.Errorf("a mounted device was opened for us alone: %v", err)
			}
			if err := unix.Unmount(dir, 0); err != nil {
				t.Fatal(err)
			}
			if err := f.Check(t.Context(), dev, fs); err != nil {
				t.Error(err)
			}
			if made, err := f.Ensure(t.Context(), dev, fs, true); err != nil || made {
				t.Fatalf("second time: made %t, %v", made, err)
			}
			if err := unix.Mount(dev, dir, fs, unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "kept" {
				t.Errorf("read back %q, %v", b, err)
			}
		})
	}
}

// killer lets blkid through and kills the maker of the file system early.
type killer struct{ cut bool }

func (k *killer) Run(ctx context.Context, name string, args ...string) (string, error) {
	if !k.cut || !strings.HasPrefix(name, "mkfs") {
		return Commands{}.Run(ctx, name, args...)
	}
	dev := args[len(args)-1]
	for _, a := range args {
		if strings.HasPrefix(a, "/dev/") {
			dev = a
		}
	}
	// What a real mkfs leaves behind when it dies before its last step.
	out, err := Commands{}.Run(ctx, name, args...)
	if err != nil {
		return out, err
	}
	f, err := os.OpenFile(dev, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.WriteAt(make([]byte, 4096), 0)
	return "", errors.Join(err, errors.New("cut short"))
}

func TestFormatCutShortHeals(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			needs.Program(t, "mkfs."+fs)
			dev, k := loopDevice(t, deviceBytes), &killer{cut: true}
			f := &Formatter{Runner: k}
			if _, err := f.Ensure(t.Context(), dev, fs, false); err == nil {
				t.Fatal("the cut was not noticed")
			}
			if marked, err := hasMark(dev, fs); err != nil || !marked {
				t.Fatalf("mkfs.%s wrote over the mark (%v)", fs, err)
			}
			k.cut = false
			if made, err := f.Ensure(t.Context(), dev, fs, false); err != nil || !made {
				t.Fatalf("second try: made %t, %v", made, err)
			}
			if marked, _ := hasMark(dev, fs); marked {
				t.Error("the mark is still there")
			}
		})
	}
}

func TestDeviceNumbers(t *testing.T) {
	dev := loopDevice(t, deviceBytes)
	if _, err := DeviceNumber(dev); err != nil {
		t.Error(err)
	}
	if _, err := DeviceNumber("/"); err == nil {
		t.Error("a directory passed as a block device")
	}
	if err := Readable(dev); err != nil {
		t.Error(err)
	}
	if err := Readable("/dev/no-such-device"); err == nil {
		t.Error("a missing device passed as readable")
	}
}

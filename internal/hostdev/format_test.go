package hostdev

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is a Runner with a blkid and mkfs of its own over plain files.
type machine struct {
	t *testing.T
	// blkid is what it prints, and its exit status if not 0.
	blkid func() (string, int)
	// mkfs runs in place of mkfs.ext4 and mkfs.xfs; nil fails the test.
	mkfs func(path string) error
	log  []string
}

func (m *machine) Run(_ context.Context, name string, args ...string) (string, error) {
	m.log = append(m.log, name)
	switch name {
	case "blkid":
		out, code := m.blkid()
		if code != 0 {
			return out, &ExitError{Program: name, Code: code}
		}
		return out, nil
	case "mkfs.ext4", "mkfs.xfs":
		if m.mkfs == nil {
			m.t.Fatalf("%s was run: data lost", name)
		}
		i := slices.IndexFunc(args, filepath.IsAbs)
		return "", m.mkfs(args[i])
	}
	m.t.Fatalf("%s %v was run", name, args)
	return "", nil
}

func nothing() (string, int) { return "", blkidNothing }
func shows(out string) func() (string, int) {
	return func() (string, int) { return out, 0 }
}

// medium makes a plain file of size bytes, zero but for the bytes given.
func medium(t *testing.T, size int64, data map[int64]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, b := range data {
		if _, err := f.WriteAt([]byte{b}, at); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func poke(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

const mib = 1 << 20

func TestEnsureRefuses(t *testing.T) {
	const size = 16 * mib
	for name, tc := range map[string]struct {
		size  int64
		data  map[int64]byte
		blkid func() (string, int)
		ro    bool
		want  error
		words string
	}{
		"another file system":      {size, nil, shows("TYPE=xfs\nUUID=1\n"), false, ErrForeign, "holds xfs, wanted ext4"},
		"an older ext":             {size, nil, shows("TYPE=ext3\n"), false, ErrForeign, "holds ext3, wanted ext4"},
		"LVM":                      {size, nil, shows("TYPE=LVM2_member\n"), false, ErrForeign, "LVM2_member"},
		"LUKS":                     {size, nil, shows("TYPE=crypto_LUKS\n"), false, ErrForeign, "wipefs"},
		"RAID":                     {size, nil, shows("TYPE=linux_raid_member\n"), false, ErrForeign, "linux_raid_member"},
		"swap":                     {size, nil, shows("TYPE=swap\n"), false, ErrForeign, "swap"},
		"GPT":                      {size, nil, shows("PTTYPE=gpt\n"), false, ErrForeign, "gpt partition table"},
		"contradiction":            {size, nil, func() (string, int) { return "", blkidAmbivalent }, false, ErrForeign, "contradict"},
		"a signature without type": {size, nil, shows("PART_ENTRY_SCHEME=dos\n"), false, ErrForeign, "contradict"},
		"a byte at the start":      {size, map[int64]byte{0: 1}, nothing, false, ErrForeign, "data at byte 0"},
		"a byte in the first MiB":  {size, map[int64]byte{mib - 1: 1}, nothing, false, ErrForeign, "data at byte 1048575"},
		"a byte in the last MiB":   {size, map[int64]byte{size - 5000: 1}, nothing, false, ErrForeign, "not blank"},
		"the last byte":            {size, map[int64]byte{size - 1: 1}, nothing, false, ErrForeign, "not blank"},
		"a byte in a sample":       {size, map[int64]byte{windows(size)[30].offset + 7: 1}, nothing, false, ErrForeign, "not blank"},
		"any byte of a small one":  {6 * mib, map[int64]byte{3*mib + 12345: 1}, nothing, false, errors.ErrUnsupported, ""},
		"blank and read-only":      {size, nil, nothing, true, ErrBlankReadOnly, "once for writing"},
		"no medium":                {0, nil, nothing, false, ErrAbsent, "its medium is not there"},
		"too small":                {mib, nil, nothing, false, errors.ErrUnsupported, "at least"},
	} {
		t.Run(name, func(t *testing.T) {
			path := medium(t, tc.size, tc.data)
			before, _ := os.ReadFile(path)
			f := &Formatter{Runner: &machine{t: t, blkid: tc.blkid}}
			made, err := f.Ensure(t.Context(), path, "ext4", tc.ro)
			if made && err == nil || !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("made %t, error %v, want %v with %q", made, err, tc.want, tc.words)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the device was written to")
			}
		})
	}
}

func TestEnsureUsesWhatIsThere(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		for _, ro := range []bool{false, true} {
			path := medium(t, 32*mib, map[int64]byte{1080: 0x53})
			f := &Formatter{Runner: &machine{t: t, blkid: shows("TYPE=" + fs + "\n")}}
			if made, err := f.Ensure(t.Context(), path, fs, ro); made || err != nil {
				t.Errorf("%s read-only %t: made %t, %v", fs, ro, made, err)
			}
		}
	}
	f := &Formatter{Runner: &machine{t: t, blkid: nothing}}
	if _, err := f.Ensure(t.Context(), "/nowhere", "btrfs", false); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("btrfs: %v", err)
	}
}

// TestFormatSurvivesACutAtEveryStep cuts the format short after each step and
// then tries again: the second try must end with a file system and no mark.
func TestFormatSurvivesACutAtEveryStep(t *testing.T) {
	const size = 32 * mib
	cut := errors.New("power cut")
	for name, remains := range map[string]func(t *testing.T, path string) string{
		"before mkfs wrote anything": func(*testing.T, string) string { return "" },
		"inode tables, no superblock": func(t *testing.T, path string) string {
			poke(t, path, 5*mib, []byte("half a file system"))
			return ""
		},
		"whole file system, mark not wiped": func(t *testing.T, path string) string {
			poke(t, path, 1080, []byte{0x53, 0xef})
			return "TYPE=ext4\n"
		},
		"a first superblock of ext2": func(t *testing.T, path string) string {
			poke(t, path, 1080, []byte{0x53, 0xef})
			return "TYPE=ext2\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, state := medium(t, size, nil), ""
			m := &machine{t: t, blkid: func() (string, int) {
				if state == "" {
					return nothing()
				}
				return state, 0
			}}
			f := &Formatter{Runner: m}
			m.mkfs = func(p string) error { state = remains(t, p); return cut }
			if _, err := f.Ensure(t.Context(), path, "ext4", false); !errors.Is(err, cut) {
				t.Fatalf("first try: %v", err)
			}
			if marked, err := hasMark(path, "ext4"); err != nil || !marked {
				t.Fatalf("no mark after the cut (%v)", err)
			}
			if _, err := f.Ensure(t.Context(), path, "ext4", true); !errors.Is(err, ErrBlankReadOnly) {
				t.Errorf("half a format was given out read-only: %v", err)
			}
			m.mkfs = func(string) error { state = "TYPE=ext4\n"; return nil }
			if made, err := f.Ensure(t.Context(), path, "ext4", false); err != nil || !made {
				t.Fatalf("second try: made %t, %v", made, err)
			}
			if marked, _ := hasMark(path, "ext4"); marked {
				t.Error("the mark is still there: a used file system could be formatted")
			}
			m.mkfs = nil
			if made, err := f.Ensure(t.Context(), path, "ext4", false); err != nil || made {
				t.Errorf("third try: made %t, %v", made, err)
			}
		})
	}
}

func TestMarkAloneDoesNotUnlockForeignData(t *testing.T) {
	const size = 32 * mib
	for name, tc := range map[string]struct {
		mark  []byte
		blkid string
		data  bool
	}{
		"LVM after our mark":      {mark(size, "ext4"), "TYPE=LVM2_member\n", false},
		"xfs after our ext4 mark": {mark(size, "ext4"), "TYPE=xfs\n", false},
		"GPT after our mark":      {mark(size, "ext4"), "PTTYPE=gpt\n", false},
		"mark of another size":    {mark(size+1, "ext4"), "", true},
		"mark of another type":    {mark(size, "xfs"), "", true},
		"torn mark":               {mark(size, "ext4")[:60], "", true},
	} {
		t.Run(name, func(t *testing.T) {
			path := medium(t, size, map[int64]byte{9 * mib: 1})
			poke(t, path, markOffset(size), tc.mark)
			m := &machine{t: t, blkid: nothing}
			if tc.blkid != "" {
				m.blkid = shows(tc.blkid)
			}
			if _, err := (&Formatter{Runner: m}).Ensure(t.Context(), path, "ext4", false); !errors.Is(err, ErrForeign) {
				t.Errorf("error %v, want ErrForeign", err)
			}
		})
	}
}

func TestMkfsThatLies(t *testing.T) {
	m := &machine{t: t, blkid: nothing, mkfs: func(string) error { return nil }}
	path := medium(t, 32*mib, nil)
	if _, err := (&Formatter{Runner: m}).Ensure(t.Context(), path, "ext4", false); err == nil || !strings.Contains(err.Error(), "reported success") {
		t.Errorf("error %v", err)
	}
	if marked, _ := hasMark(path, "ext4"); !marked {
		t.Error("the mark is gone: the device could not be formatted again")
	}
}

func TestProbeCannotRead(t *testing.T) {
	m := &machine{t: t, blkid: nothing}
	if _, err := Probe(t.Context(), m, filepath.Join(t.TempDir(), "gone")); err == nil {
		t.Error("a device that cannot be read passed as one without signature")
	}
}

func TestWindows(t *testing.T) {
	for _, size := range []int64{1, 4096, mib, 6 * mib, 6*mib + 1, 64 * mib, 1 << 40} {
		list := windows(size)
		var last, sum int64
		for _, w := range list {
			if w.offset < last || w.length <= 0 || w.length > edgeBytes || w.offset+w.length > size {
				t.Fatalf("size %d: bad window %+v after %d", size, w, last)
			}
			last = w.offset + w.length
			sum += w.length
		}
		if list[0].offset != 0 || last != size {
			t.Errorf("size %d: the ends are not read", size)
		}
		if size <= 6*mib && sum != size {
			t.Errorf("size %d: only %d bytes are read", size, sum)
		}
		if sum > 6*mib {
			t.Errorf("size %d: %d bytes are read, too many", size, sum)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		want error
	}{
		"clean": {0, nil}, "repaired": {1, nil}, "beyond repair": {4, ErrForeign}, "did not run": {8, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Formatter{Runner: runnerFunc(func(name string) (string, error) {
				if name != "e2fsck" {
					t.Fatalf("ran %s", name)
				}
				if tc.code == 0 {
					return "", nil
				}
				return "", &ExitError{Program: name, Code: tc.code}
			})}
			if err := f.Check(t.Context(), "/dev/x", "ext4"); !errors.Is(err, tc.want) || (tc.want == nil && err != nil) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if err := f.Check(t.Context(), "/dev/x", "xfs"); err != nil {
				t.Errorf("xfs: %v", err)
			}
		})
	}
}

type runnerFunc func(name string) (string, error)

func (f runnerFunc) Run(_ context.Context, name string, _ ...string) (string, error) { return f(name) }

func TestCommands(t *testing.T) {
	out, err := Commands{}.Run(t.Context(), "sh", "-c", "echo hello")
	if err != nil || out != "hello\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = Commands{}.Run(t.Context(), "sh", "-c", "echo why >&2; exit 3")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || exit.Stderr != "why" {
		t.Errorf("%v", err)
	}
	if _, err := (Commands{}).Run(t.Context(), "no-such-program"); err == nil || errors.As(err, &exit) && exit.Program == "no-such-program" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Commands{}).Run(ctx, "sleep", "60"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
}

package cleanup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMounts(t *testing.T) {
	text := `22 1 8:1 / / rw - ext4 /dev/vda rw
40 22 0:50 / /var/lib/moor-dev/machines/host-1/run rw - tmpfs tmpfs rw
41 40 0:51 / /var/lib/moor-dev/machines/host-1/run/with\040blank rw - tmpfs tmpfs rw
42 22 0:52 / /mnt/elsewhere rw - fuse.moor moor-snapemu.dpu-1 rw
43 22 0:53 / /var/lib/moor-development rw - tmpfs tmpfs rw
44 22 0:54 / /mnt/moor-snapemu.dpu-2 rw - fuse x rw
garbage
`
	got, err := ParseMounts(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/mnt/moor-snapemu.dpu-2",
		"/mnt/elsewhere",
		"/var/lib/moor-dev/machines/host-1/run/with blank",
		"/var/lib/moor-dev/machines/host-1/run",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("mounts differ (-want +got):\n%s", d)
	}
}

func TestOurs(t *testing.T) {
	inner := Loop{Device: "/dev/loop0", Number: 0x700, File: "/var/lib/moor-target/v1.img"}
	cases := []struct {
		name  string
		loops []Loop
		files map[Inode]bool
		want  []string
	}{
		{name: "a file of the target", loops: []Loop{inner}, want: []string{"/dev/loop0"}},
		{name: "of another program", loops: []Loop{{Device: "/dev/loop0", Number: 0x700, File: "/home/x/disk.img", BackingDevice: 1, Inode: 2}}},
		{name: "a name that only begins alike", loops: []Loop{{Device: "/dev/loop0", Number: 0x700, File: "/var/lib/moor-devices/x"}}},
		{name: "an emulator's file of a mount that is gone", loops: []Loop{{Device: "/dev/loop1", Number: 0x701, File: "/moor-snapemu.ns1 (deleted)"}}, want: []string{"/dev/loop1"}},
		{name: "known by its label", loops: []Loop{{Device: "/dev/loop1", Number: 0x701, File: "/v1.img", Label: "/var/lib/moor-target/v1.img"}}, want: []string{"/dev/loop1"}},
		{
			name:  "known by its inode",
			loops: []Loop{{Device: "/dev/loop1", Number: 0x701, File: "/v1.img", BackingDevice: 5, Inode: 9}},
			files: map[Inode]bool{{5, 9}: true},
			want:  []string{"/dev/loop1"},
		},
		{
			name: "outer ones first",
			loops: []Loop{
				inner,
				{Device: "/dev/loop1", Number: 0x701, File: "/dev/loop0", BackingNumber: 0x700},
				{Device: "/dev/loop2", Number: 0x702, File: "/dev/loop1", BackingNumber: 0x701},
				{Device: "/dev/loop3", Number: 0x703, File: "/dev/loop9", BackingNumber: 0x709},
			},
			want: []string{"/dev/loop2", "/dev/loop1", "/dev/loop0"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, l := range Ours(c.loops, c.files) {
				got = append(got, l.Device)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("loop devices differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestKernelSettingsComeBack(t *testing.T) {
	root := t.TempDir()
	s := settings{root: root, file: filepath.Join(t.TempDir(), "record.json")}
	write := func(value string) {
		t.Helper()
		path := filepath.Join(root, "kernel/panic")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("0")
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	write("10")
	if err := s.save(); err != nil { // a second bed must not record what the first one changed
		t.Fatal(err)
	}
	changed, err := s.changed()
	if err != nil || changed["kernel/panic"] != "0" {
		t.Fatalf("changed %v, %v; want kernel/panic with 0 before", changed, err)
	}
	if errs := s.restore(); len(errs) != 0 {
		t.Fatal(errs)
	}
	if changed, err := s.changed(); err != nil || len(changed) != 0 {
		t.Errorf("after the restore %v differ, %v", changed, err)
	}
}

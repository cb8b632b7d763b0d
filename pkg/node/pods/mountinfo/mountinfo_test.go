package mountinfo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `22 28 0:21 / /proc rw,nosuid - proc proc rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
90 28 0:50 /sub /pav/d/volume ro,relatime shared:7 master:3 - fuse.sshfs host:/x rw
91 90 0:51 / /pav/d/volume/a\040b\134c rw - tmpfs tmpfs rw
92 28 0:52 / /pav/d` + "\u00a0" + `/x rw - tmpfs none rw
94 28 0:54 / /moved rw - tmpfs tmpfs rw
93 94 0:53 /gone//deleted /moved rw - tmpfs tmpfs rw
95 99 0:55 / /over rw - tmpfs tmpfs rw
99 28 0:59 / /over rw - tmpfs tmpfs rw
`

func TestParse(t *testing.T) {
	got, err := Parse(example)
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{22, 28, "0:21", "/", "/proc", false},
		{28, 1, "254:1", "/", "/", false},
		{90, 28, "0:50", "/sub", "/pav/d/volume", true},
		{91, 90, "0:51", "/", `/pav/d/volume/a b\c`, false},
		{92, 28, "0:52", "/", "/pav/d\u00a0/x", false},
		{94, 28, "0:54", "/", "/moved", false},
		{93, 94, "0:53", "/gone//deleted", "/moved", false},
		{95, 99, "0:55", "/", "/over", false},
		{99, 28, "0:59", "/", "/over", false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, line := range map[string]string{"few fields": "1 2 3", "no number": "x 1 0:1 / /a rw - t s rw", "no parent": "1 x 0:1 / /a rw - t s rw"} {
		if _, err := Parse(line); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%s: %v, want an error with the line", name, err)
		}
	}
}

func TestFind(t *testing.T) {
	all, err := Parse(example)
	if err != nil {
		t.Fatal(err)
	}
	paths := func(of []Mount) string {
		var out []string
		for _, m := range of {
			out = append(out, m.Device)
		}
		return strings.Join(out, " ")
	}
	for at, want := range map[string]string{
		"/pav/d": "0:51 0:50", "/pav/d/volume/": "0:51 0:50", "/pav": "0:51 0:50 0:52", "/pav/d/vol": "", "/over": "0:55 0:59",
		"/": "0:51 0:53 0:55 0:21 0:50 0:52 0:54 0:59 254:1",
	} {
		if got := paths(Beneath(all, at)); got != want {
			t.Errorf("beneath %s: %q, want %q", at, got, want)
		}
	}
	for at, want := range map[string]uint64{"/pav/d/volume": 90, "/moved": 93, "/over": 95} {
		if m, ok := At(all, at); !ok || m.ID != want {
			t.Errorf("at %s: %+v %t, want the topmost, %d", at, m, ok, want)
		}
	}
	if m, ok := At(all, "/pav/d"); ok {
		t.Errorf("at the directory: %+v, want none", m)
	}
}

func TestList(t *testing.T) {
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := At(all, "/proc"); !ok {
		t.Error("/proc is not in the table")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add(`1 2 0:1 / /\0400 rw`)
	f.Add(`1 2 0:1 /\ /\777 rw`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse(text)
		if err != nil {
			return
		}
		if lines := len(strings.Split(text, "\n")); len(all) > lines || len(Beneath(all, "/")) > len(all) {
			t.Errorf("%d mounts of %d lines", len(all), lines)
		}
		for _, m := range all {
			At(all, m.Path)
		}
	})
}

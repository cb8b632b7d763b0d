package zerotrust

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	uuid1 = "00000000-0000-4000-8000-000000000001"
	uuid2 = "00000000-0000-4000-8000-000000000002"
	addr  = "0000:3b:00.2"
)

func TestParseRef(t *testing.T) {
	cases := map[string]*Ref{
		uuid1: {UUID: uuid1},
		"UUID=" + strings.ToUpper("00000000-0000-4000-8000-00000000000a"): {UUID: "00000000-0000-4000-8000-00000000000a"},
		"3B:00.2":                              {Address: addr},
		addr + "/7":                            {Address: addr, NamespaceID: 7},
		"tag=Files-1.tag":                      {Tag: "Files-1.tag"},
		"tag=":                                 nil,
		"tag=a/b":                              nil,
		"tag=" + strings.Repeat("x", 37):       nil,
		"uuid=" + addr:                         nil,
		addr + "/":                             nil,
		addr + "/0":                            nil,
		"00:00.0":                              nil,
		"":                                     nil,
		"nvme0n1":                              nil,
		"00000000-0000-0000-0000-000000000000": nil,
		"../" + addr:                           nil,
	}
	for words, want := range cases {
		got, err := ParseRef(words)
		if want == nil {
			if !errors.Is(err, ErrSyntax) {
				t.Errorf("%q: %+v, %v", words, got, err)
			}
			continue
		}
		if again, err2 := ParseRef(got.String()); err != nil || err2 != nil || got != *want || again != got {
			t.Errorf("%q: %+v, %v, and again %+v, %v", words, got, err, again, err2)
		}
	}
}

func TestPick(t *testing.T) {
	second := block(2, uuid1)
	second.NamespaceID = 2
	all := append(namespaces(block(1, uuid2), block(2, ""), second), share("files"))
	cases := map[string]struct {
		ref  Ref
		want string
		err  error
	}{
		"uuid":              {Ref{UUID: uuid2}, "nvme1n1", nil},
		"address":           {Ref{Address: "0000:3b:00.1"}, "nvme1n1", nil},
		"namespace":         {Ref{Address: "0000:3b:00.2", NamespaceID: 2}, "nvme2n1", nil},
		"several":           {Ref{Address: "0000:3b:00.2"}, "", ErrSyntax},
		"none":              {Ref{Address: "0000:3b:00.3"}, "", hostdev.ErrAbsent},
		"no such namespace": {Ref{Address: "0000:3b:00.1", NamespaceID: 2}, "", hostdev.ErrAbsent},
		"tag":               {Ref{Tag: "files"}, "files", nil},
		"no such tag":       {Ref{Tag: "Files"}, "", hostdev.ErrAbsent},
		"share by address":  {Ref{Address: "0000:30:00.0"}, "files", nil},
		"no such uuid":      {Ref{UUID: "00000000-0000-4000-8000-000000000009"}, "", hostdev.ErrAbsent},
	}
	for name, c := range cases {
		if got, err := c.ref.Pick(all); got.Name != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := (Ref{UUID: uuid1}).Pick(namespaces(block(1, uuid1), block(2, uuid1))); !errors.Is(err, ErrSyntax) {
		t.Errorf("one UUID twice: %v", err)
	}
}

func TestParseTable(t *testing.T) {
	cases := map[string]struct {
		text string
		want []Entry
		err  string
	}{
		"empty": {"# nothing\n\n", nil, ""},
		"two": {
			"uuid=" + uuid1 + " /data/ xfs noatime,ro # logs\n3b:00.2/1 /more\n",
			[]Entry{
				{Device: Ref{UUID: uuid1}, Dir: "/data", FSType: "xfs", Options: []string{"noatime", "ro"}},
				{Device: Ref{Address: addr, NamespaceID: 1}, Dir: "/more", FSType: "ext4"},
			},
			"",
		},
		"defaults": {addr + " /data ext4 defaults", []Entry{{Device: Ref{Address: addr}, Dir: "/data", FSType: "ext4"}}, ""},
		"shares": {
			"tag=files /data\n30:00.0 /more virtiofs ro",
			[]Entry{
				{Device: Ref{Tag: "files"}, Dir: "/data", FSType: "virtiofs"},
				{Device: Ref{Address: "0000:30:00.0"}, Dir: "/more", FSType: "virtiofs", Options: []string{"ro"}},
			},
			"",
		},
		"tag and type":  {"tag=files /data ext4", nil, "is one already"},
		"one word":      {"\n" + addr, nil, "line 2 of the table: want device, directory"},
		"five fields":   {addr + " /data ext4 ro 0", nil, "there are 5 fields"},
		"bad device":    {"sda /data", nil, "want a UUID"},
		"relative":      {addr + " data", nil, "want an absolute path"},
		"root":          {addr + " /..", nil, "and not /"},
		"type":          {addr + " /data ntfs", nil, `file system "ntfs"`},
		"directory":     {addr + " /data\n" + uuid1 + " /data/.", nil, "line 2 of the table: directory /data is in the table twice"},
		"device":        {addr + " /data\n3b:00.2 /more", nil, "is in the table twice"},
		"much too long": {strings.Repeat("#", maxTable+1), nil, "more than"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTable(strings.NewReader(c.text))
			if c.err != "" {
				if !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Fatalf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("uuid=" + uuid1 + " /data xfs ro\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseTable(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, e := range table {
			if !filepath.IsAbs(e.Dir) || e.Dir == "/" || filepath.Clean(e.Dir) != e.Dir || e.clashes(table[:i]) != nil {
				t.Fatalf("%q became %+v", text, e)
			}
		}
	})
}

func TestPlan(t *testing.T) {
	entry := func(id, dir string) Entry { return Entry{Device: Ref{UUID: id}, Dir: dir, FSType: "ext4"} }
	one, two := entry(uuid1, "/one"), entry(uuid2, "/two")
	mounted := func(device, dir string) mount.MountPoint { return mount.MountPoint{Device: device, Path: dir} }
	cases := map[string]struct {
		blocks []hostdev.Block
		mounts []mount.MountPoint
		want   []string
	}{
		"nothing there":               {nil, nil, nil},
		"one there":                   {[]hostdev.Block{block(1, uuid1)}, nil, []string{"mount nvme1n1 /one"}},
		"there and mounted":           {[]hostdev.Block{block(1, uuid1)}, []mount.MountPoint{mounted("/dev/nvme1n1", "/one")}, []string{"mount nvme1n1 /one"}},
		"taken away":                  {[]hostdev.Block{block(1, uuid1)}, []mount.MountPoint{mounted("/dev/nvme2n1", "/two")}, []string{"mount nvme1n1 /one", "unmount /two"}},
		"another's":                   {nil, []mount.MountPoint{mounted("/dev/sda1", "/one"), mounted("tmpfs", "/two")}, nil},
		"of another tree":             {nil, []mount.MountPoint{mounted("/elsewhere/nvme1n1", "/one")}, nil},
		"a partition is not the disk": {nil, []mount.MountPoint{mounted("/dev/nvme1n1p1", "/one")}, nil},
		"topmost counts":              {nil, []mount.MountPoint{mounted("/dev/nvme1n1", "/one"), mounted("tmpfs", "/one")}, nil},
		"shown twice":                 {[]hostdev.Block{block(1, uuid1), block(2, uuid1)}, []mount.MountPoint{mounted("/dev/nvme1n1", "/one")}, []string{"leave /one"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range plan([]Entry{one, two}, namespaces(c.blocks...), c.mounts, own{"/dev", sharedType}) {
				switch {
				case s.why != nil:
					got = append(got, "leave "+s.entry.Dir)
				case s.mount:
					got = append(got, "mount "+s.device.Name+" "+s.entry.Dir)
				default:
					got = append(got, "unmount "+s.entry.Dir)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMountWaits(t *testing.T) {
	w, a := newWorld(t)
	done := make(chan error, 1)
	go func() { done <- a.Mount(t.Context(), entry(t, uuid1, "/data", "xfs", "noatime,ro")) }()
	w.show(1, uuid2)
	w.tell()
	w.show(2, uuid1)
	w.tell()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.want("stage nvme2n1 /data xfs [noatime ro] SINGLE_NODE_READER_ONLY")
}

func TestMountFails(t *testing.T) {
	w, a := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough waited"))
	if err := a.Mount(ctx, entry(t, uuid1, "/data")); !errors.Is(err, hostdev.ErrAbsent) || !strings.Contains(err.Error(), "enough waited") {
		t.Fatalf("got %v", err)
	}
	w.show(1, uuid1)
	w.show(2, uuid1)
	if err := a.Mount(t.Context(), entry(t, uuid1, "/data")); !errors.Is(err, ErrSyntax) {
		t.Fatalf("one UUID twice: %v", err)
	}
	w.fail = provisioner.ErrPrecondition
	if err := a.Mount(t.Context(), entry(t, "3b:00.1", "/data")); !errors.Is(err, provisioner.ErrPrecondition) {
		t.Fatalf("got %v", err)
	}
	w.want()
}

// TestAnotherVolume: what stands at the place by the time of the mount is not
// what was found there.
func TestAnotherVolume(t *testing.T) {
	w, _ := newWorld(t)
	w.show(1, uuid1)
	found, err := w.finder.List()
	if err != nil || len(found) != 1 || found[0].UUID != uuid1 {
		t.Fatalf("got %+v, %v", found, err)
	}
	w.show(1, uuid2)
	if _, err := NewHost(w.finder).Open(t.Context(), provisioner.OpenSpec{PublishContext: placeOf(Shown{Block: found[0]})}); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestWatch(t *testing.T) {
	w, a := newWorld(t)
	w.show(1, uuid1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Watch(ctx, []Entry{entry(t, uuid1, "/one"), entry(t, uuid2, "/two", "xfs")})
	}()
	one, two := "stage nvme1n1 /one ext4 [] SINGLE_NODE_WRITER", "stage nvme2n1 /two xfs [] SINGLE_NODE_WRITER"
	w.want(one)
	w.show(2, uuid2)
	w.tell()
	w.want(one, two)
	w.hide(1)
	w.clock.Step(time.Minute) // a sign was lost
	w.want(one, two, "unstage /one")
	cancel()
	<-done
}

// TestKernelSigns: what happens in the tree is told of, however deep it begins.
func TestKernelSigns(t *testing.T) {
	w, _ := newWorld(t)
	if err := os.MkdirAll(filepath.Join(w.finder.Roots.Sysfs, "bus/pci/drivers/nvme"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := NewKernelWatcher(ctx, w.finder.Roots)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Wait()
	defer cancel()
	for _, change := range []func(){func() { w.show(1, uuid1) }, func() { w.hide(1) }, func() { w.show(1, uuid1) }} {
		deadline := time.After(30 * time.Second)
		for told := false; !told; {
			change() // again: the directories may not have been watched yet
			select {
			case <-s.Changed():
				told = true
			case <-time.After(50 * time.Millisecond):
			case <-deadline:
				t.Fatal("no sign")
			}
		}
	}
}

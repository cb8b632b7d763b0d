package pavdir

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const directory = "pav-volume-stage-1"

// bed is a root with one directory.
type bed struct {
	*Root
	t   *testing.T
	dir string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Root: NewRoot(t.TempDir()), t: t}
	b.dir = b.Path(directory)
	b.must(os.Mkdir(b.dir, 0o755))
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) write(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	b.must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (b *bed) pod(since Since) moorv1alpha1.PodReport {
	b.t.Helper()
	got, err := b.Pod(directory, since)
	b.must(err)
	return got
}

func TestPod(t *testing.T) {
	long := strings.Repeat("ü", maxHandle)
	for name, c := range map[string]struct {
		files map[string]string
		want  moorv1alpha1.PodReport
	}{
		"nothing":          {nil, moorv1alpha1.PodReport{}},
		"all":              {map[string]string{"handle": "h\n", "capacity": "1Gi\n", "ready": "x", "error": "words\n"}, moorv1alpha1.PodReport{Ready: true, Handle: ptr.To("h"), Capacity: ptr.To("1Gi"), Error: "words"}},
		"one newline":      {map[string]string{"handle": "a\nb\n\n", "capacity": " 1 "}, moorv1alpha1.PodReport{Handle: ptr.To("a\nb\n"), Capacity: ptr.To(" 1 ")}},
		"empty":            {map[string]string{"handle": "", "capacity": "\n"}, moorv1alpha1.PodReport{Handle: ptr.To(""), Capacity: ptr.To("")}},
		"longest":          {map[string]string{"handle": long + "\n"}, moorv1alpha1.PodReport{Handle: &long}},
		"handle too long":  {map[string]string{"handle": long + "x"}, moorv1alpha1.PodReport{Problem: "/pav/handle has more than 4096 characters"}},
		"huge":             {map[string]string{"handle": strings.Repeat("x", 10<<20), "capacity": strings.Repeat("1", maxCapacity+1)}, moorv1alpha1.PodReport{Problem: "/pav/handle has more than 4096 characters; /pav/capacity has more than 256 characters"}},
		"long error":       {map[string]string{"error": strings.Repeat("ü", maxError+1)}, moorv1alpha1.PodReport{Error: strings.Repeat("ü", maxError)}},
		"huge error":       {map[string]string{"error": "x" + strings.Repeat("ü", 1<<20)}, moorv1alpha1.PodReport{Error: "x" + strings.Repeat("ü", maxError-1)}},
		"handle no UTF-8":  {map[string]string{"handle": "a\xff", "capacity": "1"}, moorv1alpha1.PodReport{Capacity: ptr.To("1"), Problem: "/pav/handle is not valid UTF-8"}},
		"error no UTF-8":   {map[string]string{"error": "a\xffb"}, moorv1alpha1.PodReport{Error: "a\uFFFDb", Problem: "/pav/error is not valid UTF-8"}},
		"handle cut ended": {map[string]string{"handle": "a\xe2\x82"}, moorv1alpha1.PodReport{Problem: "/pav/handle is not valid UTF-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			for file, text := range c.files {
				b.write(file, text)
			}
			if d := cmp.Diff(c.want, b.pod(Since{})); d != "" {
				t.Error(d)
			}
		})
	}
}

// What a pod puts in the place of a file is neither followed nor opened.
func TestHostileFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"symlink":         {func(p string) error { return os.Symlink("/etc/shadow", p) }, "is a symbolic link"},
		"symlink inside":  {func(p string) error { return os.Symlink("other", p) }, "is a symbolic link"},
		"magic link":      {func(p string) error { return os.Symlink("/proc/self/environ", p) }, "is a symbolic link"},
		"FIFO":            {func(p string) error { return unix.Mkfifo(p, 0o600) }, "is a FIFO"},
		"directory":       {func(p string) error { return os.Mkdir(p, 0o700) }, "is a directory"},
		"hard link":       {func(p string) error { return os.Link(secret, p) }, "hard links"},
		"socket":          {listen, "is a socket"},
		"symlink outside": {func(p string) error { return os.Symlink(secret, p) }, "is a symbolic link"},
	} {
		for _, file := range []string{"handle", "capacity", "error", "ready"} {
			t.Run(name+" "+file, func(t *testing.T) {
				b := newBed(t)
				b.write("capacity", "1")
				b.write("other", "other")
				_ = os.Remove(filepath.Join(b.dir, file))
				b.must(c.put(filepath.Join(b.dir, file)))
				got := b.pod(Since{})
				if !strings.HasPrefix(got.Problem, "/pav/"+file+" ") || !strings.Contains(got.Problem, c.want) {
					t.Errorf("problem %q, want one of /pav/%s that %s", got.Problem, file, c.want)
				}
				if got.Ready || got.Handle != nil || got.Error != "" || (file != "capacity") != (got.Capacity != nil) {
					t.Errorf("report %+v, want only the capacity", got)
				}
				if ready, err := b.Ready(directory); err != nil || ready != (file == "ready") {
					t.Errorf("ready %t, %v: a ready file of a wrong kind has to be told", ready, err)
				}
			})
		}
	}
}

// listen makes a socket, and leaves it there. Its name may be longer than one of a socket may be.
func listen(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

// What was there before the pod began does not count for it.
func TestLeftByAnother(t *testing.T) {
	b := newBed(t)
	b.write("handle", "old")
	b.must(os.Chtimes(filepath.Join(b.dir, "handle"), time.Now().Add(time.Hour), time.Now().Add(time.Hour))) // a pod can set these
	later := time.Now().Add(time.Minute)
	if got := b.pod(Since{Time: later}); got.Handle != nil || !strings.Contains(got.Problem, "/pav/handle was written at ") || !strings.Contains(got.Problem, "another has left it") {
		t.Errorf("%+v", got)
	}
	if got := b.pod(Since{Time: later, Shared: true}); got.Handle != nil || got.Problem != "" {
		t.Errorf("%+v", got)
	}
	var st unix.Stat_t
	b.must(unix.Stat(filepath.Join(b.dir, "handle"), &st))
	// The kernel stamps files by a clock that may be a tick behind the one that pods are timed by.
	for ahead, old := range map[time.Duration]bool{0: false, tick: false, tick + 1: true} {
		if got := b.pod(Since{Time: time.Unix(st.Ctim.Unix()).Add(ahead)}); (got.Problem != "") != old {
			t.Errorf("written %s before the pod began: %+v", ahead, got)
		}
	}
	if got := b.pod(Since{Time: time.Now().Truncate(time.Second)}); got.Problem != "" || *got.Handle != "old" {
		t.Errorf("%+v", got)
	}
}

func TestDirectory(t *testing.T) {
	b := newBed(t)
	if _, err := b.Pod("../etc", Since{}); !errors.Is(err, ErrName) {
		t.Errorf("a name that leads out: %v", err)
	}
	for name, c := range map[string]struct {
		put  func() error
		want string
	}{
		"absent":  {func() error { return nil }, "is not there on the node"},
		"symlink": {func() error { return os.Symlink("/etc", b.Path("d")) }, "/pav is "},
		"file":    {func() error { return os.WriteFile(b.Path("d"), nil, 0o600) }, "/pav is not a directory"},
	} {
		_ = os.Remove(b.Path("d"))
		b.must(c.put())
		got, err := b.Staged("d", Since{})
		if err != nil || !strings.Contains(got.Problem, c.want) {
			t.Errorf("%s: %q, %v, want %q", name, got.Problem, err, c.want)
		}
		if ready, err := b.Ready("d"); err != nil || ready && name == "absent" {
			t.Errorf("%s: ready %t, %v", name, ready, err)
		}
	}
	if got, err := NewRoot(filepath.Join(b.dir, "none")).Pod("d", Since{}); err != nil || !strings.Contains(got.Problem, "is not there on the node") {
		t.Errorf("without a root: %q, %v", got.Problem, err)
	}
}

// A file that is replaced while it is read is read as one or as the other, and one that is written to is
// told, but never read in part.
func TestReplacedWhileRead(t *testing.T) {
	b := newBed(t)
	stop, done := make(chan struct{}), make(chan struct{})
	texts := []string{strings.Repeat("a", 3000), strings.Repeat("b", 3000)}
	b.write("handle", texts[0])
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				b.write("new", texts[n%2])
				_ = os.Rename(filepath.Join(b.dir, "new"), filepath.Join(b.dir, "handle"))
			}
		}
	}()
	for range 500 {
		got := b.pod(Since{})
		if got.Handle == nil || *got.Handle != texts[0] && *got.Handle != texts[1] {
			t.Errorf("read %+v", got)
			break
		}
	}
	close(stop)
	<-done
}

func TestProblemsAreCut(t *testing.T) {
	var r moorv1alpha1.PodReport
	for range 100 {
		if err := note(&r, problem("%s", strings.Repeat("ü", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if n := utf8.RuneCountInString(r.Problem); n != maxProblem {
		t.Errorf("%d characters", n)
	}
	if err := note(&r, os.ErrNotExist); err != nil {
		t.Error(err)
	}
	if err := note(&r, unix.EIO); !errors.Is(err, unix.EIO) {
		t.Errorf("a failure to read is told as %v", err)
	}
}

func FuzzValue(f *testing.F) {
	f.Add("1Gi\n", 256)
	f.Add("\xff", 1)
	f.Add("üü", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		got, err := value(text, most)
		if err != nil {
			if _, is := errors.AsType[Problem](err); !is {
				t.Errorf("%v is no problem of the file", err)
			}
			return
		}
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > most || got != text && got+"\n" != text {
			t.Errorf("%q of %q", got, text)
		}
	})
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"pav-volume-stage-1", "..", "a/b", "a~b", ".gone~a~b", "A", "a.b", strings.Repeat("a", 201)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		if filepath.Base(name) != name || name == "." || name == ".." || nameBefore(name) != "" || len(name) > 200 {
			t.Errorf("%q is taken", name)
		}
		if nameBefore(gone+mark+name+mark+"x") != name {
			t.Errorf("%q is not known when it is removed", name)
		}
	})
}

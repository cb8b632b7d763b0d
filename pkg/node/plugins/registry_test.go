package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// TestCheck is the table of what a plugin can say of itself, in DPF's order of
// questions, and what becomes of it.
func TestCheck(t *testing.T) {
	refusal := errors.Join(errors.New("refused"), provisioner.ErrPrecondition)
	silent := errors.Join(errors.New("silent"), provisioner.ErrUnavailable)
	cases := map[string]struct {
		says func(p *plugin)
		// want is the provider of a plugin that registers.
		want  string
		fails error
		calls []string
	}{
		"all well":             {func(*plugin) {}, "nvidia", nil, []string{"Info", "Probe", "Capabilities", "Provider"}},
		"another provider":     {func(p *plugin) { p.provider = "vfs" }, "vfs", nil, nil},
		"file systems alone":   {func(p *plugin) { p.can = vendorplugin.Capabilities{Filesystem: true} }, "nvidia", nil, nil},
		"without a name":       {func(p *plugin) { p.info.Name = "" }, "nvidia", nil, nil},
		"no GetSNAPProvider":   {func(p *plugin) { p.fail["Provider"] = provisioner.ErrUnsupported }, "nvidia", nil, nil},
		"GetPluginInfo fails":  {func(p *plugin) { p.fail["Info"] = refusal }, "", provisioner.ErrPrecondition, []string{"Info"}},
		"silent":               {func(p *plugin) { p.fail["Info"] = silent }, "", provisioner.ErrUnavailable, []string{"Info"}},
		"not ready":            {func(p *plugin) { p.fail["Probe"] = silent }, "", provisioner.ErrUnavailable, []string{"Info", "Probe"}},
		"no capabilities call": {func(p *plugin) { p.fail["Capabilities"] = provisioner.ErrUnsupported }, "", provisioner.ErrUnsupported, []string{"Info", "Probe", "Capabilities"}},
		"can do nothing":       {func(p *plugin) { p.can = vendorplugin.Capabilities{Get: true, List: true} }, "", provisioner.ErrUnsupported, []string{"Info", "Probe", "Capabilities"}},
		"bad provider":         {func(p *plugin) { p.fail["Provider"] = refusal }, "", provisioner.ErrPrecondition, []string{"Info", "Probe", "Capabilities", "Provider"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
			p := w.plugin("block")
			c.says(p)
			w.socket("block")
			w.start()
			state := w.ready("block", c.fails == nil)
			got, err := w.Get("block")
			if named := p.info.Name != ""; named == strings.Contains(state.Message, "gives itself no name") {
				t.Errorf("told: %s", state.Message)
			}
			if !errors.Is(err, c.fails) || state.Provider != c.want || got.Provider != c.want {
				t.Fatalf("got %+v, %v, want provider %q and %v", state, err, c.want, c.fails)
			}
			p.set(func() {
				if c.calls != nil && !slices.Equal(p.calls, c.calls) {
					t.Fatalf("asked %v, want %v", p.calls, c.calls)
				}
			})
		})
	}
}

// TestSockets is the table of what can lie in the directory.
func TestSockets(t *testing.T) {
	ready := func(name string) moorv1alpha1.PluginState {
		return moorv1alpha1.PluginState{Name: name, Ready: true, Version: "1.0", Provider: "nvidia"}
	}
	cases := map[string]struct {
		lay  func(w *world)
		want []string // names that are ready; others are not
		bad  map[string]string
	}{
		"no directory":      {func(*world) {}, nil, nil},
		"two":               {func(w *world) { w.socket("fs"); w.socket("block") }, []string{"block", "fs"}, nil},
		"a plain file":      {func(w *world) { w.write("block/dpu.sock") }, nil, map[string]string{"block": "is not a socket but a file: remove it"}},
		"a directory":       {func(w *world) { w.must(os.MkdirAll(filepath.Join(w.root, "block/dpu.sock"), 0o755)) }, nil, map[string]string{"block": "is not a socket"}},
		"a hidden one":      {func(w *world) { w.socket(".block") }, nil, nil},
		"an empty one":      {func(w *world) { w.must(os.MkdirAll(filepath.Join(w.root, "block"), 0o755)) }, nil, nil},
		"another socket":    {func(w *world) { w.socket("block"); w.rename("block/dpu.sock", "block/other.sock") }, nil, nil},
		"deeper":            {func(w *world) { w.must(os.MkdirAll(filepath.Join(w.root, "a"), 0o755)); w.socket("a/block") }, nil, nil},
		"a file beside":     {func(w *world) { w.socket("block"); w.write("notes") }, []string{"block"}, nil},
		"a linked socket":   {func(w *world) { w.socket("block"); w.link("block/dpu.sock", "block/real.sock") }, []string{"block"}, nil},
		"a dangling link":   {func(w *world) { w.socket("block"); w.link("block/dpu.sock", "block/gone"); w.remove("block/gone") }, nil, nil},
		"names that repeat": {func(w *world) { w.twins() }, []string{"b"}, map[string]string{"a": "so does the plugin in directory b"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
			c.lay(w)
			w.start()
			w.until(name, func(all []moorv1alpha1.PluginState) bool {
				if _, err := w.Names(); err != nil || len(all) != len(c.want)+len(c.bad) {
					return false
				}
				for _, s := range all {
					words, bad := c.bad[s.Name]
					if bad && (s.Ready || !strings.Contains(s.Message, words)) || !bad && s != ready(s.Name) {
						return false
					}
				}
				return true
			})
			for bad := range c.bad {
				if _, err := w.Get(bad); !errors.Is(err, provisioner.ErrPrecondition) {
					t.Fatalf("%s: got %v", bad, err)
				}
			}
		})
	}
}

func (w *world) write(name string) {
	w.t.Helper()
	path := filepath.Join(w.root, name)
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.must(os.WriteFile(path, nil, 0o600))
}

func (w *world) rename(from, to string) {
	w.t.Helper()
	w.must(os.Rename(filepath.Join(w.root, from), filepath.Join(w.root, to)))
}

func (w *world) remove(name string) {
	w.t.Helper()
	w.must(os.RemoveAll(filepath.Join(w.root, name)))
}

func (w *world) link(name, target string) {
	w.t.Helper()
	w.rename(name, target)
	w.must(os.Symlink(filepath.Join(w.root, target), filepath.Join(w.root, name)))
}

// twins are two plugins with one name, of which b was there before.
func (w *world) twins() {
	w.t.Helper()
	for _, dir := range []string{"a", "b"} {
		w.socket(dir)
		w.plugin(dir).info.Name = "storage.dpu.twin.com"
	}
	old := time.Now().Add(-time.Hour)
	w.must(os.Chtimes(filepath.Join(w.root, "b", socketName), old, old))
}

func TestUnknown(t *testing.T) {
	w := newWorld(t, Options{})
	if _, err := w.Names(); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("before the first look: %v", err)
	}
	for name, want := range map[string]error{"block": provisioner.ErrUnavailable, "../x": provisioner.ErrInvalid, "": provisioner.ErrInvalid} {
		if _, err := w.Get(name); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", name, err, want)
		}
	}
	w.Suspect("block") // nothing to suspect
}

// TestLife: a plugin appears, is lost, comes back, goes with its directory, and
// so does the root.
func TestLife(t *testing.T) {
	w := newWorld(t, Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	w.start()
	w.until("first look", func([]moorv1alpha1.PluginState) bool { _, err := w.Names(); return err == nil })
	w.socket("block")
	w.ready("block", true)
	w.remove("block/dpu.sock")
	if s := w.ready("block", false); !strings.Contains(s.Message, "is gone") {
		t.Fatalf("got %+v", s)
	}
	if names, err := w.Names(); err != nil || !slices.Equal(names, []string{"block"}) {
		t.Fatalf("a plugin that was lost may still have devices: %v, %v", names, err)
	}
	w.socket("block")
	w.ready("block", true)
	w.remove("block")
	w.until("gone", func(all []moorv1alpha1.PluginState) bool { return len(all) == 0 })
	w.must(os.RemoveAll(w.root))
	w.until("root is made again", func([]moorv1alpha1.PluginState) bool { _, err := os.Stat(w.root); return err == nil })
	w.socket("fs")
	w.ready("fs", true)
}

// TestReplaced: another socket at the same place is another plugin, which is
// checked before it is used.
func TestReplaced(t *testing.T) {
	w := newWorld(t, Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	w.socket("block")
	w.start()
	w.ready("block", true)
	told := w.changes.Load()
	p := w.plugin("block")
	p.set(func() { p.info.Version = "2.0" })
	w.socket("block")
	w.until("the new version", func(all []moorv1alpha1.PluginState) bool { return len(all) == 1 && all[0].Version == "2.0" })
	if n := p.count("Info"); n != 2 {
		t.Fatalf("checked %d times", n)
	}
	if w.changes.Load() == told {
		t.Fatal("the change was not reported")
	}
}

// TestTwinTakesOver: when the one goes that had the name, the other may be used.
func TestTwinTakesOver(t *testing.T) {
	w := newWorld(t, Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	w.twins()
	w.start()
	w.ready("b", true)
	w.ready("a", false)
	w.remove("b")
	w.ready("a", true)
}

// TestRetry: a plugin that fails its check is checked again, with pauses that
// grow; when it works it is checked each period.
func TestRetry(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := newWorld(t, Options{Clock: clock, Period: time.Minute})
	p := w.plugin("block")
	p.fail["Probe"] = provisioner.ErrUnavailable
	w.socket("block")
	w.start()
	w.ready("block", false)
	for failures := 1; failures <= 9; failures++ {
		w.sleeps(2) // the net, and the pause
		if n := p.count("Probe"); n != failures {
			t.Fatalf("probed %d times, want %d", n, failures)
		}
		if failures < 9 {
			clock.Step(pause(failures))
		}
	}
	p.set(func() { delete(p.fail, "Probe") })
	clock.Step(lastPause)
	w.ready("block", true)
	w.sleeps(2)
	p.set(func() { p.fail["Info"] = provisioner.ErrUnavailable })
	clock.Step(time.Minute)
	w.ready("block", false)
}

// TestLost: the end of the connection, and a call that went unanswered, have
// the plugin checked at once, but not without end.
func TestLost(t *testing.T) {
	for name, hurt := range map[string]func(w *world, p *plugin){
		"connection": func(_ *world, p *plugin) { p.lost <- struct{}{} },
		"suspicion":  func(w *world, _ *plugin) { w.Suspect("block") },
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			w := newWorld(t, Options{Clock: clock})
			w.socket("block")
			w.start()
			w.ready("block", true)
			p := w.plugin("block")
			w.sleeps(2)
			p.set(func() { p.fail["Info"] = provisioner.ErrUnavailable })
			clock.Step(firstPause)
			hurt(w, p)
			w.ready("block", false)
			p.set(func() { delete(p.fail, "Info") })
			w.sleeps(2)
			clock.Step(firstPause)
			w.ready("block", true)
			w.sleeps(2)
			before := p.count("Info")
			hurt(w, p) // within firstPause of the check
			w.sleeps(2)
			if n := p.count("Info"); n != before {
				t.Fatalf("checked %d times in no time", n-before)
			}
		})
	}
}

// TestHangs: a plugin that hangs holds up itself alone, and its end is the end
// of its socket or of the registry.
func TestHangs(t *testing.T) {
	w := newWorld(t, Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	w.plugin("block").hang = make(chan struct{})
	w.socket("block")
	stop := w.start()
	w.socket("fs")
	w.ready("fs", true)
	if _, err := w.Get("block"); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "being checked") {
		t.Fatalf("got %v", err)
	}
	stop()
}

// TestOverflow: what no event told of is found by the look that each error of
// the watch, and each period, brings.
func TestOverflow(t *testing.T) {
	w := newWorld(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer w.stopAll()
	defer cancel()
	blind := func(string) error { return errors.New("no watches left") }
	if err := w.scan(ctx, blind); err == nil {
		t.Fatal("a watch that cannot be had is no error")
	}
	w.socket("block")
	if err := w.scan(ctx, blind); err == nil {
		t.Fatal("a watch that cannot be had is no error")
	}
	w.ready("block", true)
}

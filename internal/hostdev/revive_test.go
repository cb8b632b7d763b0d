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

// written takes what was written to a file of the nvme driver.
func written(t *testing.T, f *Finder, name string) string {
	t.Helper()
	got, err := os.ReadFile(f.Roots.sys("bus/pci/drivers/nvme", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Roots.sys("bus/pci/drivers/nvme", name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// TestGivenUpFunctionIsBoundAgain: the driver looks at a function when it gets
// it, which may have been before the DPU had put anything behind it.
func TestGivenUpFunctionIsBoundAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		states []string // of its controllers
		bind   bool
		after  time.Duration // -1: never
	}{
		"dead":                     {[]string{"dead"}, true, 0},
		"no controller":            {nil, true, probeGrace},
		"live":                     {[]string{"live"}, true, -1},
		"resetting":                {[]string{"resetting"}, true, -1},
		"connecting":               {[]string{"connecting"}, true, -1},
		"state unknown":            {[]string{""}, true, -1},
		"one of two is dead":       {[]string{"dead", "live"}, true, -1},
		"dead, drivers left alone": {[]string{"dead"}, false, -1},
		"bare, drivers left alone": {nil, false, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tree(t, nil)
				function(t, f, addr, nvmeDriver)
				for i, state := range tc.states {
					file := filepath.Join("sys/bus/pci/devices", addr, "nvme", "nvme"+string(rune('0'+i)), "state")
					grow(t, f, map[string]string{file: state + "\n"})
				}
				f.Bind = tc.bind
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					_, err := f.Wait(ctx, addr, 1)
					done <- err
				}()
				began := time.Now()
				rebound := time.Duration(-1)
				for range 100 {
					synctest.Wait()
					if got := written(t, f, "unbind") + written(t, f, "bind"); got != "" {
						if got != addr+addr || rebound >= 0 {
							t.Errorf("after %s %q was written to unbind and bind; before after %s", time.Since(began), got, rebound)
						}
						rebound = time.Since(began)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if tc.after < 0 != (rebound < 0) || rebound < tc.after || rebound > tc.after+2*longWait {
					t.Errorf("bound again after %s, want %s", rebound, tc.after)
				}
				cancel()
				if err := <-done; !errors.Is(err, ErrAbsent) {
					t.Error(err)
				}
			})
		})
	}
}

// modules loads drivers as modprobe does.
type modules struct {
	t    *testing.T
	f    *Finder
	asks []string
	err  error
	// takes is a function that the kernel gives to the driver once it is loaded.
	takes string
}

func (m *modules) Run(_ context.Context, name string, args ...string) (string, error) {
	m.asks = append(m.asks, strings.Join(append([]string{name}, args...), " "))
	if m.err != nil {
		return "", m.err
	}
	bus := "pci"
	if args[0] == virtioFS {
		bus = "virtio"
	}
	files := map[string]string{filepath.Join("sys/bus", bus, "drivers", args[0], "unbind"): ""}
	if m.takes == "" {
		files[filepath.Join("sys/bus", bus, "drivers", args[0], "bind")] = ""
	} else {
		files[filepath.Join("sys/bus/pci/devices", m.takes, "driver")] = "-> ../../drivers/" + args[0]
		if err := os.MkdirAll(m.f.Roots.sys("bus/pci/drivers", args[0], "bind/taken"), 0o755); err != nil { // writing to it fails
			m.t.Fatal(err)
		}
	}
	grow(m.t, m.f, files)
	return "", nil
}

func TestDriverIsLoaded(t *testing.T) {
	refused := &ExitError{Program: "modprobe", Code: 1, Stderr: "FATAL: Module nvme not found"}
	for name, tc := range map[string]struct {
		loaded bool
		err    error
		takes  string
		asks   int
		words  string
	}{
		"is not there":              {false, nil, "", 1, ""},
		"is there":                  {true, nil, "", 0, ""},
		"cannot be loaded":          {false, refused, "", 1, "Module nvme not found"},
		"takes it when it is there": {false, nil, addr, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := tree(t, map[string]string{pci + "driver_override": ""})
			if tc.loaded {
				grow(t, f, map[string]string{"sys/bus/pci/drivers/nvme/bind": ""})
			}
			m := &modules{t: t, f: f, err: tc.err, takes: tc.takes}
			f.Load = m
			err := f.BindDriver(t.Context(), addr, nvmeDriver)
			if (err == nil) != (tc.words == "") || (err != nil && !strings.Contains(err.Error(), tc.words)) {
				t.Errorf("%v, want %q", err, tc.words)
			}
			if len(m.asks) != tc.asks || (tc.asks > 0 && m.asks[0] != "modprobe nvme") {
				t.Errorf("ran %q", m.asks)
			}
			if tc.takes == "" && err == nil {
				if got, _ := os.ReadFile(f.Roots.sys("bus/pci/drivers/nvme/bind")); string(got) != addr {
					t.Errorf("bind holds %q", got)
				}
			}
		})
	}
}

// TestVirtioFSIsLoaded: both its drivers; that the second is not to be had does not
// keep the file system from being mounted, which loads it too.
func TestVirtioFSIsLoaded(t *testing.T) {
	for name, fails := range map[string]bool{"loads": false, "fails": true} {
		t.Run(name, func(t *testing.T) {
			f := tree(t, map[string]string{pci + "driver": "-> ../../drivers/virtio-pci"})
			m := &modules{t: t, f: f}
			if fails {
				m.err = errors.New("no modprobe here")
			}
			f.Load, f.BindShared = m, true
			for range 2 {
				if err := f.WaitShared(t.Context(), Identity{Address: addr}); err != nil {
					t.Fatal(err)
				}
			}
			if m.asks[0] != "modprobe virtiofs" || (!fails && len(m.asks) != 1) {
				t.Errorf("ran %q", m.asks)
			}
			f.BindShared, m.asks = false, nil
			if err := f.WaitShared(t.Context(), Identity{Address: addr}); err != nil || len(m.asks) != 0 {
				t.Errorf("drivers are left alone: ran %q, %v", m.asks, err)
			}
		})
	}
}

func TestLoader(t *testing.T) {
	if Loader(DefaultRoots()) == nil || Loader(Roots{Sysfs: t.TempDir(), Dev: "/dev"}) != nil {
		t.Error("drivers are loaded for a tree that is not this machine's, or not for this machine")
	}
}

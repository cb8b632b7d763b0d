// Package kubebuild builds Kubernetes, etcd and the CSI sidecars from their Go
// modules, as pinned under hack/kube, into a cache outside the checkout. It
// never builds what the cache has, and a program is in the cache only when it
// is complete.
package kubebuild

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// attempts is how often a build is tried: the first failure on a slow network
// is usually a download.
const attempts = 3

type module struct {
	dir      string
	ldflags  string
	programs map[string]string
}

const versionVar = "k8s.io/component-base/version."

// beside is what is built beside Kubernetes, the same for each release.
var beside = []module{
	{dir: "hack/kube/etcd", ldflags: "-s -w", programs: map[string]string{"etcd": "."}},
	{
		dir:     "hack/kube/sidecars",
		ldflags: "-s -w",
		programs: map[string]string{
			"csi-attacher":    "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
			"csi-provisioner": "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
			"csi-resizer":     "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
		},
	},
	{dir: "hack/kube/pause", ldflags: "-s -w", programs: map[string]string{"pause": "."}},
}

// Programs lists the names of all that can be built.
func Programs() []string {
	var all []string
	for _, m := range Default.modules() {
		all = append(all, slices.Collect(maps.Keys(m.programs))...)
	}
	slices.Sort(all)
	return all
}

// Build makes sure that the programs, or all if none is named, are in the
// cache with Kubernetes of the release, and returns the directory that holds them. It is safe to run at the
// same time from several processes: one builds, the others wait.
func Build(ctx context.Context, root string, release Release, only []string, progress io.Writer) (string, error) {
	for _, name := range only {
		if !slices.Contains(Programs(), name) {
			return "", fmt.Errorf("build %s: no such program; there are %s", name, strings.Join(Programs(), ", "))
		}
	}
	dir, err := dirFor(ctx, root, release)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if len(missing(bin, only)) == 0 {
		return bin, nil
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make the build cache: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	want := missing(bin, only) // another process may have built meanwhile
	for _, m := range release.modules() {
		if err := m.build(ctx, root, bin, want, progress); err != nil {
			return "", err
		}
	}
	return bin, nil
}

func dirFor(ctx context.Context, root string, release Release) (string, error) {
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return "", fmt.Errorf("ask Go for its version (is it in PATH?): %w", err)
	}
	key, err := Key(root, strings.TrimSpace(string(version)), release)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, key), nil
}

// missing lists those programs of a list, or of all, that a directory lacks.
func missing(bin string, only []string) []string {
	if len(only) == 0 {
		only = Programs()
	}
	var lacking []string
	for _, name := range only {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("wait for another build (%s): %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

func (m module) build(ctx context.Context, root, bin string, want []string, progress io.Writer) error {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.programs)) {
		if slices.Contains(want, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	temp, err := os.MkdirTemp(filepath.Dir(bin), "building-")
	if err != nil {
		return fmt.Errorf("make a directory to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", m.ldflags, "-o", temp + "/"}
	for _, name := range names {
		args = append(args, m.programs[name])
	}
	if err := Go(ctx, filepath.Join(root, m.dir), strings.Join(names, ", "), progress, args...); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(temp, name), filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("put %s into the cache: %w", name, err)
		}
	}
	return nil
}

// Go runs the go command in a directory, static and with the local toolchain,
// up to three times, and writes a line of progress now and then.
func Go(ctx context.Context, dir, what string, progress io.Writer, args ...string) error {
	start := time.Now()
	heading(progress, "building %s", what)
	stop := tick(progress, what, start)
	defer stop()
	var err error
	for range attempts {
		var output bytes.Buffer
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=")
		cmd.Stdout, cmd.Stderr = &output, &output
		if err = cmd.Run(); err == nil {
			heading(progress, "built %s in %.0f s", what, time.Since(start).Seconds())
			return nil
		}
		err = fmt.Errorf("build %s in %s: %w\n%s", what, dir, err, tail(output.String(), 30))
		if ctx.Err() != nil || sourceError(output.String()) {
			return err
		}
		heading(progress, "%v", err)
	}
	return err
}

// sourceError reports whether the output is that of the compiler or linker,
// which begins with "# PACKAGE": trying again does not help.
func sourceError(output string) bool { return strings.Contains("\n"+output, "\n# ") }

// tick says every 15 seconds that the work still goes on.
func tick(progress io.Writer, what string, start time.Time) func() {
	ticker, done, ended := time.NewTicker(15*time.Second), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				heading(progress, "still building %s, %.0f s", what, time.Since(start).Seconds())
			}
		}
	}()
	return func() { ticker.Stop(); close(done); <-ended }
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster"
)

// failed finds the names of the outermost tests that failed.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

const (
	testTimeout = 5 * time.Minute
	bedTimeout  = 15 * time.Minute
)

// inTests runs the tests of a mutation and returns which caught it.
func inTests(ctx context.Context, root string, m mutation) (string, error) {
	dir, err := os.MkdirTemp("", "moor-mutation-")
	if err != nil {
		return "", fmt.Errorf("make a directory for mutation %q: %w", m.name, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	cmd := command(ctx, root, "go", "test", "-count=1", "-vet=off", "-timeout=2m", "-overlay="+overlay)
	cmd.Args = append(cmd.Args, strings.Fields(m.tests)...)
	out, err := cmd.CombinedOutput()
	found := failed.FindAllSubmatch(out, -1)
	switch {
	case err == nil:
		return "", nil
	case len(found) == 0 && !bytes.Contains(out, []byte("panic: test timed out")):
		return "", fmt.Errorf("mutation %q: its tests did not run: %w\n%s", m.name, err, out)
	}
	if len(found) == 0 {
		return m.tests + ": they hang", nil
	}
	var names []string
	for _, f := range found {
		names = append(names, string(f[1]))
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(names)-3))
	}
	return m.tests + ": " + strings.Join(names, ", "), nil
}

func command(ctx context.Context, root, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	// What it started itself ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// inBed brings a bed up, puts the mutated program in its place, runs the
// end-to-end test and returns the words with which it failed. The bed is taken
// down again.
func inBed(ctx context.Context, root string, m mutation) (by string, err error) {
	dir, err := os.MkdirTemp("", "moor-mutation-")
	if err != nil {
		return "", fmt.Errorf("make a directory for mutation %q: %w", m.name, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, bedTimeout)
	defer cancel()
	moorDev := filepath.Join(root, "bin", "moor-dev")
	defer func() {
		if downErr := say(static(context.WithoutCancel(ctx), root, moorDev, "down")); err == nil {
			err = downErr
		}
	}()
	for _, words := range [][]string{
		{"go", "build", "-trimpath", "-o", "bin/moor-dev", "./test/cmd/moor-dev"},
		{"go", "test", "-c", "-trimpath", "-tags=e2e", "-o", "bin/e2e.test", "./test/e2e"},
		{moorDev, "up", "--kubelet-profile=fast"},
	} {
		if err := say(static(ctx, root, words[0], words[1:]...)); err != nil {
			return "", err
		}
	}
	if err := replace(ctx, root, overlay, m.program); err != nil {
		return "", err
	}
	return fails(static(ctx, filepath.Join(root, "test", "e2e"), "../../bin/e2e.test",
		"-ginkgo.no-color", "-ginkgo.v", "-ginkgo.focus="+m.focus), m.words)
}

// replace puts the mutated program in the place of the real one, and restarts
// its processes. The next bed builds the real one again.
func replace(ctx context.Context, root, overlay, program string) error {
	bed, err := devcluster.Load()
	if err != nil {
		return err
	}
	path := filepath.Join(bed.BinDir(), program)
	source := "./cmd/" + program
	if _, err := os.Stat(filepath.Join(root, source)); err != nil {
		source = "./reference/cmd/" + program
	}
	if err := say(static(ctx, root, "go", "build", "-trimpath", "-buildvcs=false", "-overlay="+overlay, "-o", path, source)); err != nil {
		return err
	}
	processes, err := bed.Processes()
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.Argv[0] != path {
			continue
		}
		if err := bed.Restart(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// say runs a command; what it said is in the error.
func say(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// static is a command that builds as the bed does, to share its cache.
func static(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := command(ctx, dir, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// fails runs an end-to-end test until it says the words, and returns their
// line, "" if it ends without them. It does not wait for the test to clean up.
func fails(cmd *exec.Cmd, words string) (string, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("run the end-to-end test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("run the end-to-end test: %w", err)
	}
	var last []string
	found := ""
	for lines := bufio.NewScanner(out); lines.Scan() && found == ""; {
		line := strings.TrimSpace(lines.Text())
		if last = append(last, line); len(last) > 40 {
			last = last[1:]
		}
		if strings.Contains(line, words) {
			found = line
		}
	}
	if found != "" {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		return found, nil
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("it failed without the words %q: %w\n%s", words, err, strings.Join(last, "\n"))
	}
	return "", nil
}

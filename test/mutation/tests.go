package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// failed finds the names of the outermost tests that failed.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// errStillborn is of a mutation that does not compile, so that no test has tried it.
var errStillborn = errors.New("it does not compile")

const testTimeout = 5 * time.Minute

// Tests that run longer hang, if something is switched off. With nothing switched off they
// may take longer, as on a busy machine: that they do is no mistake.
const hangs, mayTake = 2 * time.Minute, 10 * time.Minute

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
	flags := []string{"-overlay=" + overlay}
	if m.at > 0 { // there are hundreds, which link sooner without what a debugger reads
		flags = append(flags, "-failfast", "-ldflags=-s -w")
	}
	out, err := tests(ctx, root, hangs, strings.Fields(m.tests), flags...).CombinedOutput()
	switch {
	case err == nil:
		return "", nil
	case bytes.Contains(out, []byte("[build failed]")):
		return "", fmt.Errorf("mutation %q: %w\n%s", m.name, errStillborn, out)
	}
	return caughtBy(m, out, err)
}

// caughtBy is which tests failed, by what they said.
func caughtBy(m mutation, out []byte, err error) (string, error) {
	found := failed.FindAllSubmatch(out, -1)
	switch {
	case len(found) > 0:
	case bytes.Contains(out, []byte("panic: test timed out")):
		return m.tests + ": they hang", nil
	case bytes.Contains(out, []byte("panic: ")), bytes.Contains(out, []byte("fatal error: ")): // outside of a test's own goroutine
		return m.tests + ": they panic", nil
	default:
		return "", fmt.Errorf("mutation %q: its tests did not run: %w\n%s", m.name, err, out)
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

// tests is a run of the packages' tests, each of which ends after the limit.
func tests(ctx context.Context, root string, limit time.Duration, packages []string, flags ...string) *exec.Cmd {
	cmd := command(ctx, root, "go", "test", "-count=1", "-vet=off", "-timeout="+limit.String())
	cmd.Args = append(append(cmd.Args, flags...), packages...)
	return cmd
}

// controlTests runs the tests of the mutations with nothing switched off, one
// package at a time, as they run with something switched off.
func controlTests(ctx context.Context, root string, chosen []mutation) error {
	var packages []string
	for _, m := range chosen {
		packages = append(packages, strings.Fields(m.tests)...)
	}
	slices.Sort(packages)
	return say(tests(ctx, root, mayTake, slices.Compact(packages), "-p=1"))
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

// say runs a command; what it said is in the error.
func say(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
)

const bedTimeout = 15 * time.Minute

// inBed brings a bed up, puts the mutated program in its place, runs the
// end-to-end test and returns the words with which it failed.
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
	err = onBed(ctx, root, func() error {
		if err := replace(ctx, root, overlay, m.program); err != nil {
			return err
		}
		by, err = fails(specs(ctx, root, m.focus), m.words)
		return err
	})
	return by, err
}

// onBed calls act with a bed up and the end-to-end tests built. The bed is taken
// down again.
func onBed(ctx context.Context, root string, act func() error) (err error) {
	moorDev := filepath.Join(root, "bin", "moor-dev")
	defer func() {
		if downErr := say(static(context.WithoutCancel(ctx), root, moorDev, "down")); err == nil {
			err = downErr
		}
	}()
	for _, words := range [][]string{
		{"go", "build", "-trimpath", kubebuild.Tags, "-o", "bin/moor-dev", "./test/cmd/moor-dev"},
		{"go", "test", "-c", "-trimpath", kubebuild.Tags + ",e2e", "-o", "bin/e2e.test", "./test/e2e"},
		{moorDev, "up", "--kubelet-profile=fast"},
	} {
		if err := say(static(ctx, root, words[0], words[1:]...)); err != nil {
			return err
		}
	}
	return act()
}

// specs is a run of the end-to-end tests whose names match focus.
func specs(ctx context.Context, root, focus string) *exec.Cmd {
	return static(ctx, filepath.Join(root, "test", "e2e"), "../../bin/e2e.test", "-ginkgo.no-color", "-ginkgo.v", "-ginkgo.focus="+focus)
}

// ran finds how many specs ginkgo has run.
var ran = regexp.MustCompile(`(?m)^Ran (\d+) of \d+ Specs`)

// controlBed runs the end-to-end tests of the mutations with nothing switched off,
// on one bed: for each there is one, and it passes.
func controlBed(ctx context.Context, root string, chosen []mutation) error {
	var focus []string
	for _, m := range chosen {
		focus = append(focus, m.focus)
	}
	slices.Sort(focus)
	focus = slices.Compact(focus)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(focus))*bedTimeout)
	defer cancel()
	return onBed(ctx, root, func() error {
		for _, f := range focus {
			if err := passes(specs(ctx, root, f)); err != nil {
				return fmt.Errorf("run the end-to-end test %q: %w", f, err)
			}
		}
		return nil
	})
}

// passes runs end-to-end tests, at least one.
func passes(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if n := ran.FindSubmatch(out); err == nil && (n == nil || string(n[1]) == "0") {
		err = errors.New("there is none of that name")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
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
	if err := say(static(ctx, root, "go", "build", "-trimpath", "-buildvcs=false", kubebuild.Tags, "-overlay="+overlay, "-o", path, source)); err != nil {
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

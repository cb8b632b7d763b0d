package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`)

// defaultName is the name of a machine like this one; a host's own name
// belongs in no public file.
func defaultName() string { return fmt.Sprintf("%dcpu", runtime.NumCPU()) }

// describeMachine says what the numbers are measured on, and how many other
// programs want to run there now: on a busy machine all numbers are worse.
func describeMachine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := modelName.FindSubmatch(text); m != nil {
			model = strings.TrimSpace(string(m[1]))
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d x %s, Linux %s, load %s before", runtime.NumCPU(), model, strings.TrimSpace(string(kernel)), minute)
}

// describeCommit is the commit of the checkout, with -dirty if Go files in it
// differ from it; "unknown" outside of git.
func describeCommit(ctx context.Context, root string) string {
	commit, err := git(ctx, root, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changed, err := git(ctx, root, "status", "--porcelain", "--untracked-files=no", "--", "*.go"); err != nil || changed != "" {
		commit += "-dirty"
	}
	return commit
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("ask git %v: %w", args, err)
	}
	return strings.TrimSpace(string(out)), nil
}

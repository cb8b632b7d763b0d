package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster/procs"
)

const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

// bootTimeout bounds how long process 1 may take to arrange its mounts.
const bootTimeout = 60 * time.Second

// Boot starts a machine and returns when its mounts are in place. init is the
// moor-dev program, specFile where the description is put, logFile where
// process 1 writes. The machine has no network yet.
func Boot(ctx context.Context, init string, spec Spec, specFile, logFile string) (procs.Identity, error) {
	if err := writeSpec(spec, specFile); err != nil {
		return procs.Identity{}, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return procs.Identity{}, fmt.Errorf("boot machine %s: %w", spec.Name, err)
	}
	defer read.Close()
	identity, err := start(init, specFile, logFile, write)
	if err := errors.Join(err, write.Close()); err != nil {
		return procs.Identity{}, fmt.Errorf("boot machine %s: %w", spec.Name, err)
	}
	if err := awaitReady(ctx, read); err != nil {
		_ = identity.Signal(syscall.SIGKILL)
		return procs.Identity{}, fmt.Errorf("boot machine %s (its log is %s): %w", spec.Name, logFile, err)
	}
	return identity, nil
}

func writeSpec(spec Spec, path string) error {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("describe machine %s: %w", spec.Name, err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("describe machine %s: %w", spec.Name, err)
	}
	if err := os.MkdirAll(spec.RunDir, 0o755); err != nil {
		return fmt.Errorf("prepare /run of machine %s: %w", spec.Name, err)
	}
	return nil
}

func start(init, specFile, logFile string, ready *os.File) (procs.Identity, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return procs.Identity{}, err
	}
	defer log.Close()
	cmd := exec.Command(init, InitCommand, specFile)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{ready} // becomes readyFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}
	if err := cmd.Start(); err != nil {
		return procs.Identity{}, fmt.Errorf("start process 1 in new namespaces (root needed): %w", err)
	}
	identity, err := procs.Identify(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // reaps it, should it end while we live
	return identity, err
}

func awaitReady(ctx context.Context, read *os.File) error {
	deadline := time.Now().Add(bootTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := read.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("wait for process 1: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word, err := io.ReadAll(read)
	switch {
	case err != nil:
		return fmt.Errorf("wait for process 1: %w", errors.Join(err, ctx.Err()))
	case string(word) != readyWord:
		return fmt.Errorf("process 1 says: %q", strings.TrimSpace(string(word)))
	}
	return nil
}

// Enter returns the words of a command that runs another one inside a machine:
// in its cgroups and all its namespaces. cgroups are cgroup.procs files.
func Enter(pid int, cgroups []string, argv ...string) []string {
	join := fmt.Sprintf(`for f in %s; do echo $$ >"$f"; done; exec "$@"`, strings.Join(cgroups, " "))
	words := []string{"/bin/sh", "-c", join, "moor-enter", "nsenter", "-t", fmt.Sprint(pid), "-m", "-u", "-i", "-n", "-p", "--"}
	return append(words, argv...)
}

// Root is the machine's root directory as seen from this machine.
func Root(pid int, path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), path)
}

package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// modulePath is how a checkout of Moor is recognized.
const modulePath = "module github.com/moor-storage/moor\n"

// reporter writes lines of progress with the seconds since the start.
type reporter struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newReporter(out io.Writer) *reporter {
	if out == nil {
		out = io.Discard
	}
	return &reporter{out: out, start: time.Now()}
}

func (r *reporter) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r, format+"\n", args...)
}

// Write puts the time before what is usually one line.
func (r *reporter) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf("%6.1fs  %s", time.Since(r.start).Seconds(), line)
	if _, err := io.WriteString(r.out, text); err != nil {
		return 0, fmt.Errorf("report progress: %w", err)
	}
	return len(line), nil
}

// FindRoot finds the checkout of Moor around the current directory, or else
// around the running program.
func FindRoot() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && bytes.Contains(text, []byte(modulePath)) {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("find the checkout of Moor: none of %s is in one; change to it", strings.Join(starts, ", "))
}

// lockBed keeps other programs from bringing a bed up or down meanwhile. The
// kernel releases it when this process ends in any way.
func lockBed(ctx context.Context, progress io.Writer) (func(), error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("lock the bed: only root can make the bed's namespaces")
	}
	f, err := os.OpenFile(layout.LockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the bed: %w", err)
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock the bed: %w", err), f.Close())
		}
		if !waited && progress != nil {
			_, _ = fmt.Fprintln(progress, "another moor-dev is at work; waiting for it")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another moor-dev (lock %s): %w", layout.LockFile, ctx.Err()), f.Close())
		case <-ticker.C:
		}
	}
}

// tail returns the last lines of a log, indented, for an error.
func tail(path string, lines int) string {
	out, err := exec.Command("tail", "-n", fmt.Sprint(lines), path).Output()
	if err != nil {
		return "  (no log in " + path + ")"
	}
	text := strings.TrimRight(string(out), "\n")
	return "  the end of " + path + ":\n  | " + strings.ReplaceAll(text, "\n", "\n  | ")
}

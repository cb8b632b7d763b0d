package hostdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Runner runs a program of the host.
type Runner interface {
	// Run runs name with args and returns what it printed on standard
	// output. A program that ran and failed gives an *ExitError; one that
	// could not be started, or was cut off by ctx, another error.
	Run(ctx context.Context, name string, args ...string) (stdout string, err error)
}

// ExitError is a program that ran and failed.
type ExitError struct {
	Program string
	// Code is its exit status.
	Code int
	// Stderr is what it said, trimmed.
	Stderr string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s ended with status %d: %s", e.Program, e.Code, e.Stderr)
}

// Commands runs real programs found in PATH.
type Commands struct{}

// Run implements Runner. The program dies with us: a mkfs that outlives the
// plugin would write on while the plugin's successor looks at the device.
func (Commands) Run(ctx context.Context, name string, args ...string) (string, error) {
	// Pdeathsig is sent when the thread ends that started the program, so
	// the thread has to stay until it is done (prctl(2), golang/go#27505).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		return stdout.String(), fmt.Errorf("%s was cut off: %w", name, ctx.Err())
	case errors.As(err, &exit):
		return stdout.String(), &ExitError{Program: name, Code: exit.ExitCode(), Stderr: strings.TrimSpace(stderr.String())}
	}
	return stdout.String(), fmt.Errorf("run %s: %w", name, err)
}

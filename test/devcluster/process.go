package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster/cgroup"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/machine"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/devcluster/record"
)

const (
	// startTimeout bounds how long a program may take to be executed.
	startTimeout = 60 * time.Second
	// endTimeout is how long Restart waits after SIGTERM before SIGKILL.
	endTimeout = 10 * time.Second
)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// Start runs a program in a machine, detached from this process: it lives on
// when this process ends. Its output is appended to Log(name). Start returns
// when the program is executed; a name that already runs is an error.
func (c *Cluster) Start(ctx context.Context, p Process) error {
	if !validName.MatchString(p.Name) || len(p.Argv) == 0 {
		return fmt.Errorf("start process %q in %s: want a name of a-z, 0-9, '.' and '-', and a program", p.Name, p.Machine)
	}
	started := time.Now()
	if old, err := record.LoadProcess(p.Name); err == nil {
		if old.Identity.Alive() {
			return fmt.Errorf("start process %s in %s: it already runs as %d in %s", p.Name, p.Machine, old.Identity.PID, old.Machine)
		}
		started = old.Started // keeps its place in the order of a boot
	}
	r := record.Running{Process: p, Started: started}
	if err := c.spawn(ctx, &r); err != nil {
		return fmt.Errorf("start process %s in %s: %w\n%s", p.Name, p.Machine, err, tail(c.Log(p.Name), 20))
	}
	return record.SaveProcess(r)
}

func (c *Cluster) spawn(ctx context.Context, r *record.Running) error {
	cmd, err := c.Command(r.Machine, r.Env, r.Argv...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.Log(r.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	wrapper, err := procs.Identify(cmd.Process.Pid)
	go func() { ended <- cmd.Wait() }()
	if err != nil {
		return err
	}
	r.Wrapper = wrapper
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = poll(ctx, 2*time.Millisecond, func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("it ended at once (%v)", err)
		default:
		}
		var found bool
		r.Identity, found = executed(wrapper.PID)
		return found, nil
	})
	if err != nil && wrapper.Alive() {
		killTree(wrapper.PID) // what is not on record must not run
	}
	return err
}

// executed finds the program below its nsenter, once it is no longer nsenter.
func executed(wrapper int) (procs.Identity, bool) {
	children, err := procs.Children(wrapper)
	if err != nil || len(children) == 0 {
		return procs.Identity{}, false
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", children[0]))
	if err != nil || filepath.Base(program) == "nsenter" {
		return procs.Identity{}, false
	}
	id, err := procs.Identify(children[0])
	return id, err == nil
}

// Command makes a command that runs a program inside a machine, in its cgroups.
// The caller sets its input and output and starts it.
func (c *Cluster) Command(machineName string, env []string, argv ...string) (*exec.Cmd, error) {
	m, err := running(machineName)
	if err != nil {
		return nil, err
	}
	files, err := cgroup.ProcsFiles(machineName)
	if err != nil {
		return nil, err
	}
	words := machine.Enter(m.Identity.PID, files, argv...)
	cmd := exec.Command(words[0], words[1:]...)
	path := strings.Join([]string{c.meta.BinDir, c.meta.KubeBinDir, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, ":")
	cmd.Env = append([]string{"PATH=" + path, "HOME=/root", "LANG=C.UTF-8"}, env...)
	return cmd, nil
}

// Exec runs a command inside a machine to its end and returns its standard
// output; its standard error is in the error. The command is killed when the
// context ends.
func (c *Cluster) Exec(ctx context.Context, machineName string, argv ...string) ([]byte, error) {
	cmd, err := c.Command(machineName, nil, argv...)
	if err != nil {
		return nil, err
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %v in %s: %w", argv, machineName, err)
	}
	stop := context.AfterFunc(ctx, func() { killTree(cmd.Process.Pid) })
	err = cmd.Wait()
	stop()
	if err != nil {
		return out.Bytes(), fmt.Errorf("run %v in %s: %w: %s", argv, machineName, errors.Join(err, ctx.Err()), strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// killTree kills nsenter's child, after whose end nsenter ends, and nsenter.
func killTree(wrapper int) {
	children, _ := procs.Children(wrapper)
	for _, pid := range append(children, wrapper) {
		if id, err := procs.Identify(pid); err == nil {
			_ = id.Signal(syscall.SIGKILL)
		}
	}
}

// Kill sends a signal to a process; one that has ended is no error. After
// SIGKILL it returns only when the process is gone. It stays one of its machine's:
// it is started again when that is powered on.
func (c *Cluster) Kill(name string, sig syscall.Signal) error {
	p, err := record.LoadProcess(name)
	if err != nil {
		return fmt.Errorf("signal process %s: %w", name, err)
	}
	if err := p.Identity.Signal(sig); err != nil {
		return fmt.Errorf("signal process %s: %w", name, err)
	}
	if sig != syscall.SIGKILL {
		return nil
	}
	return awaitEnd(p, patience)
}

// Remove ends a process for good: it does not come back with the power of its
// machine, as one that was killed does. One that was never started is no error.
func (c *Cluster) Remove(name string) error {
	if err := c.Kill(name, syscall.SIGKILL); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return record.RemoveProcess(name)
}

func awaitEnd(p record.Running, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); p.Identity.Alive(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for the end of process %s (%d): it still runs after %v", p.Name, p.Identity.PID, timeout)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// Running reports whether a process of that name runs.
func (c *Cluster) Running(name string) bool {
	p, err := record.LoadProcess(name)
	return err == nil && p.Identity.Alive()
}

// Restart ends a process, politely if it lets itself be asked, and starts it
// again with the same arguments.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	p, err := record.LoadProcess(name)
	if err != nil {
		return fmt.Errorf("restart process %s: %w", name, err)
	}
	return c.restartAs(ctx, p, p.Process)
}

// RestartWith is Restart with other arguments: those that change makes of the old
// ones. They are kept, also over a power-off.
func (c *Cluster) RestartWith(ctx context.Context, name string, change func(argv []string) []string) error {
	p, err := record.LoadProcess(name)
	if err != nil {
		return fmt.Errorf("restart process %s: %w", name, err)
	}
	next := p.Process
	next.Argv = change(slices.Clone(next.Argv))
	return c.restartAs(ctx, p, next)
}

func (c *Cluster) restartAs(ctx context.Context, old record.Running, next Process) error {
	if err := old.Identity.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("restart process %s: %w", old.Name, err)
	}
	if awaitEnd(old, endTimeout) != nil {
		if err := c.Kill(old.Name, syscall.SIGKILL); err != nil {
			return fmt.Errorf("restart process %s: %w", old.Name, err)
		}
	}
	return c.Start(ctx, next)
}

// Processes lists every process ever started in this bed, in the order of the
// first start; Running tells which of them run.
func (c *Cluster) Processes() ([]record.Running, error) { return record.Processes() }

// Log is the path of a process's log.
func (c *Cluster) Log(name string) string { return layout.LogFile(name) }

// FollowLog copies the end of a process's log, and with follow what is added
// until the context ends.
func (c *Cluster) FollowLog(ctx context.Context, name string, follow bool, out io.Writer) error {
	if _, err := os.Stat(c.Log(name)); err != nil {
		return fmt.Errorf("show the log of process %s (moor-dev status lists the names): %w", name, err)
	}
	args := []string{"-n", "+1", c.Log(name)}
	if follow {
		args = []string{"-n", "50", "-F", c.Log(name)}
	}
	cmd := exec.CommandContext(ctx, "tail", args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("show the log of process %s: %w", name, err)
	}
	return nil
}

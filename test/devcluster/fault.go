package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster/cgroup"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/devcluster/record"
)

// CutNetwork pulls a machine's plug out of the bed's network; the link between
// a host and its DPU, and the PCIe link, stay. A cut machine stays so until
// JoinNetwork or its next power-on.
func (c *Cluster) CutNetwork(ctx context.Context, machine string) error {
	return setPort(ctx, machine, "down")
}

// JoinNetwork puts the plug back.
func (c *Cluster) JoinNetwork(ctx context.Context, machine string) error {
	return setPort(ctx, machine, "up")
}

func setPort(ctx context.Context, machine, state string) error {
	hub, err := running(layout.Hub)
	if err == nil {
		err = ip(ctx, hub.Identity.PID, fmt.Sprintf("link set p-%s %s", machine, state))
	}
	if err != nil {
		return fmt.Errorf("set the network of %s %s: %w", machine, state, err)
	}
	return nil
}

// CutAPI keeps a machine from all API servers and from nothing else: the
// storage target, which the same address serves, stays within reach. It lasts
// until JoinAPI or the next power-on.
func (c *Cluster) CutAPI(ctx context.Context, machine string) error {
	return cut(ctx, machine, "add", c.portsOfAPI()...)
}

// JoinAPI undoes CutAPI.
func (c *Cluster) JoinAPI(ctx context.Context, machine string) error {
	return cut(ctx, machine, "del", c.portsOfAPI()...)
}

func (c *Cluster) portsOfAPI() []int {
	var out []int
	for _, p := range c.planes() {
		out = append(out, p.port)
	}
	return out
}

func (c *Cluster) portsOfTargets() []int {
	var out []int
	for i := range c.DPUClusters() {
		out = append(out, layout.TargetPort+i)
	}
	return out
}

// CutStorage keeps a machine from the storage target and from nothing else, until
// JoinStorage or the next power-on. Nothing is refused: what is sent is lost.
func (c *Cluster) CutStorage(ctx context.Context, machine string) error {
	return cut(ctx, machine, "add", c.portsOfTargets()...)
}

// JoinStorage undoes CutStorage.
func (c *Cluster) JoinStorage(ctx context.Context, machine string) error {
	return cut(ctx, machine, "del", c.portsOfTargets()...)
}

// cut adds or deletes the rules that lose what a machine sends to these ports.
func cut(ctx context.Context, machine, verb string, ports ...int) error {
	m, err := running(machine)
	if err != nil {
		return err
	}
	var commands []string
	for _, port := range ports {
		commands = append(commands, fmt.Sprintf("rule %s pref 100 ipproto tcp dport %d blackhole", verb, port))
	}
	if err := ip(ctx, m.Identity.PID, commands...); err != nil {
		return fmt.Errorf("%s the rules that cut %s off from ports %v: %w", verb, machine, ports, err)
	}
	return nil
}

// Freeze stops every process of a machine with SIGSTOP, as if its clock stood
// still, and returns when none runs any more. Its kernel goes on: it answers
// the network, and I/O that was begun may end.
func (c *Cluster) Freeze(ctx context.Context, machine string) error {
	// Every state but those of the stopped and the dead.
	if err := c.each(ctx, machine, "RSDIWP", syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze machine %s: %w", machine, err)
	}
	return nil
}

// Thaw lets the processes of a frozen machine go on, and returns when none is
// stopped any more: nsenter, having seen its child stop, stops itself when it
// goes on first.
func (c *Cluster) Thaw(ctx context.Context, machine string) error {
	if err := c.each(ctx, machine, "Tt", syscall.SIGCONT); err != nil {
		return fmt.Errorf("thaw machine %s: %w", machine, err)
	}
	return nil
}

// calmLooks is how many looks in a row have to find nothing more to do: between
// two of them a process may be born, or stop.
const calmLooks = 5

// each sends a signal to every process of a machine that is in one of the
// states, until there is none.
func (c *Cluster) each(ctx context.Context, machine, states string, sig syscall.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	calm := 0
	return poll(ctx, 10*time.Millisecond, func(context.Context) (bool, error) {
		pids, err := cgroup.Members(machine)
		if err != nil {
			return false, err
		}
		calm++
		for _, pid := range pids {
			stat, err := procs.ReadStat(pid)
			if err == nil && strings.IndexByte(states, stat.State) >= 0 {
				calm = 0
				signalMember(pid, sig)
			}
		}
		return calm >= calmLooks, nil
	})
}

// wake lets nsenter go on where it is stopped: it is outside the machine, stands
// still with its child there, and would never see that die.
func wake(pids []int) {
	for _, pid := range pids {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(program) == "nsenter" {
			signalMember(pid, syscall.SIGCONT)
		}
	}
}

// signalMember signals a process that was a member a moment ago.
func signalMember(pid int, sig syscall.Signal) {
	if id, err := procs.Identify(pid); err == nil {
		_ = id.Signal(sig)
	}
}

// Pause stops one process with SIGSTOP.
func (c *Cluster) Pause(_ context.Context, name string) error { return c.Kill(name, syscall.SIGSTOP) }

// Resume lets a paused process go on, and the wrapper that stopped with it.
func (c *Cluster) Resume(_ context.Context, name string) error {
	p, err := record.LoadProcess(name)
	if err == nil {
		err = errors.Join(p.Identity.Signal(syscall.SIGCONT), p.Wrapper.Signal(syscall.SIGCONT))
	}
	if err != nil {
		return fmt.Errorf("resume process %s: %w", name, err)
	}
	return nil
}

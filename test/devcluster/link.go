package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/record"
)

const (
	// pcieTimeout bounds one word to an emulated SNAP service: a power-off
	// does not wait for one that hangs.
	pcieTimeout = time.Second
	// pciePatience is how long a service that was started with its DPU may
	// take to hear that its host is off.
	pciePatience = 20 * time.Second
)

// CutLink cuts the link between a host and its DPU that is not the cluster
// network; pair counts from 1. Both live on, and cannot hear one another there.
// A link that is cut stays so. The next power-on of either repairs it.
func (c *Cluster) CutLink(ctx context.Context, pair int) error {
	return c.setLink(ctx, pair, "down")
}

// JoinLink repairs a link that was cut.
func (c *Cluster) JoinLink(ctx context.Context, pair int) error { return c.setLink(ctx, pair, "up") }

// setLink works at the host's end: at the DPU's the address and the route stay,
// as they do where a host does not answer.
func (c *Cluster) setLink(ctx context.Context, pair int, state string) error {
	m, err := running(layout.HostName(pair))
	if err != nil {
		return fmt.Errorf("set the link of pair %d %s: %w", pair, state, err)
	}
	return ip(ctx, m.Identity.PID, fmt.Sprintf("link set %s %s", layout.LinkDevice, state))
}

// joinPair makes the link between a host and its DPU anew, once both are on.
func (c *Cluster) joinPair(ctx context.Context, pair int) error {
	unlock, err := lockPair(pair)
	if err != nil {
		return err
	}
	defer unlock()
	host, hostErr := record.LoadMachine(layout.HostName(pair))
	dpu, dpuErr := record.LoadMachine(layout.DPUName(pair))
	if hostErr != nil || dpuErr != nil || !host.Identity.Alive() || !dpu.Identity.Alive() {
		return nil // the other one makes it when it boots
	}
	for _, m := range []record.Machine{host, dpu} {
		// The kernel removes the link to a dead machine a little later.
		_ = ip(ctx, m.Identity.PID, "link del "+layout.LinkDevice)
	}
	err = ip(ctx, dpu.Identity.PID,
		fmt.Sprintf("link add %s address %s type veth peer name %[1]s address %[3]s netns %[4]d", layout.LinkDevice, mac(layout.LinkDPU), mac(layout.LinkHost), host.Identity.PID),
		fmt.Sprintf("addr add %s/30 dev %s", layout.LinkDPU, layout.LinkDevice),
		fmt.Sprintf("link set %s up", layout.LinkDevice))
	if err != nil {
		return err
	}
	return ip(ctx, host.Identity.PID,
		fmt.Sprintf("addr add %s/30 dev %s", layout.LinkHost, layout.LinkDevice),
		fmt.Sprintf("link set %s up", layout.LinkDevice))
}

// lockPair keeps two boots of one pair apart. It does not block for long.
func lockPair(pair int) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(layout.StateDir, fmt.Sprintf("pair-%d.lock", pair)), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the link of pair %d: %w", pair, err)
	}
	return func() { _ = f.Close() }, nil
}

// setPCIe tells the emulated SNAP service in the DPU of a pair whether its host
// is there. Without a service there is no PCIe link either, which is no error.
func (c *Cluster) setPCIe(ctx context.Context, pair int, up bool) error {
	socket := filepath.Join(layout.MachinePath(layout.DPUName(pair), layout.MachineDataDir), layout.SNAPSocket[len(layout.MachineDataDir):])
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pcieTimeout)
	defer cancel()
	err := snaprpc.New(socket, pcieTimeout).Call(ctx, "moor_link", map[string]any{"up": up}, nil)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set the emulated PCIe link of pair %d, up is %v: %w", pair, up, err)
	}
	return nil
}

// matchPCIe makes the emulated PCIe link what the power of the host says, after
// a machine of the pair was powered on and its processes were started.
func (c *Cluster) matchPCIe(ctx context.Context, b box) error {
	host, err := record.LoadMachine(layout.HostName(b.index))
	if err != nil || b.name == host.Name {
		return nil // a host that boots has done it before its processes started
	}
	if host.Identity.Alive() || !c.Running("snap-emulator-"+b.name) {
		return nil
	}
	socket := filepath.Join(layout.MachinePath(b.name, layout.MachineDataDir), layout.SNAPSocket[len(layout.MachineDataDir):])
	ctx, cancel := context.WithTimeout(ctx, pciePatience)
	defer cancel()
	return poll(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		if !c.Running("snap-emulator-" + b.name) {
			return true, nil
		}
		err := snaprpc.New(socket, pcieTimeout).Call(ctx, "moor_link", map[string]any{"up": false}, nil)
		return err == nil, nil
	})
}

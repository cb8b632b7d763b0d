package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/moor-storage/moor/test/devcluster/cgroup"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/machine"
	"github.com/moor-storage/moor/test/devcluster/record"
)

// patience bounds how long the kernel may take to end killed processes.
const patience = 60 * time.Second

// box is one machine to boot.
type box struct {
	name, ip string
	// index is that of the pair, 0 for the hub.
	index int
	// target and pcie say which shared directories it sees.
	target, pcie bool
	// cluster is the one whose node its kubelet makes it, and pods the range of its
	// pods; both are empty without a kubelet.
	cluster, pods string
}

// isHost reports whether it is the host of its pair.
func (b box) isHost() bool { return b.index > 0 && b.name == layout.HostName(b.index) }

func (c *Cluster) hub() box { return box{name: layout.Hub, ip: layout.HubIP, target: true} }

func (c *Cluster) host(i int) box {
	return box{name: layout.HostName(i), ip: layout.HostIP(i), index: i, pcie: true, cluster: HostCluster, pods: layout.PodSubnet(i)}
}

func (c *Cluster) dpu(i int) box {
	b := box{name: layout.DPUName(i), ip: layout.DPUIP(i), index: i, pcie: true, target: true}
	if c.meta.Options.DPUPods {
		b.cluster, b.pods = c.clusterOf(b.name), layout.DPUPodSubnet(i)
	}
	return b
}

// pairs lists every host and every DPU.
func (c *Cluster) pairs() []box {
	var all []box
	for i := 1; i <= c.meta.Options.Nodes; i++ {
		all = append(all, c.host(i), c.dpu(i))
	}
	return all
}

// kubelets lists the machines that have a kubelet.
func (c *Cluster) kubelets() []box {
	return slices.DeleteFunc(c.pairs(), func(b box) bool { return b.cluster == "" })
}

// kubeletsOf lists those of one cluster.
func (c *Cluster) kubeletsOf(cluster string) []box {
	return slices.DeleteFunc(c.kubelets(), func(b box) bool { return b.cluster != cluster })
}

// boxOf finds a machine by name.
func (c *Cluster) boxOf(name string) (box, error) {
	if name == layout.Hub {
		return c.hub(), nil
	}
	kind, number, _ := strings.Cut(name, "-")
	i, err := strconv.Atoi(number)
	if err == nil && i >= 1 && i <= c.meta.Options.Nodes {
		switch kind {
		case "host":
			return c.host(i), nil
		case "dpu":
			return c.dpu(i), nil
		}
	}
	return box{}, fmt.Errorf("find machine %q: there are hub, host-1 to host-%[2]d and dpu-1 to dpu-%[2]d", name, c.meta.Options.Nodes)
}

// machineDirs are the default paths of kubelet, containerd, CNI and Moor, of
// which every machine has its own.
func machineDirs() []string {
	return []string{
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log", layout.MachineDataDir,
		"/etc/cni", "/etc/containerd", "/etc/kubernetes",
	}
}

func (c *Cluster) specOf(b box) (machine.Spec, error) {
	dir := layout.MachineDir(b.name)
	spec := machine.Spec{
		Name:     b.name,
		RunDir:   filepath.Join(dir, "run"),
		RunBinds: []machine.Bind{{Source: layout.StateDir, Target: strings.TrimPrefix(layout.StateDir, "/run/")}},
		Settings: map[string]string{"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"},
	}
	for _, path := range machineDirs() {
		spec.Binds = append(spec.Binds, machine.Bind{Source: layout.MachinePath(b.name, path), Target: path})
	}
	if b.target {
		spec.Binds = append(spec.Binds, machine.Bind{Source: layout.TargetSource(), Target: layout.TargetDir})
	}
	if b.pcie {
		spec.RunBinds = append(spec.RunBinds, machine.Bind{Source: layout.SharedDir(b.index), Target: strings.TrimPrefix(layout.PCIeDir, "/run/")})
	}
	for _, bind := range append(spec.Binds, spec.RunBinds...) {
		if err := os.MkdirAll(bind.Source, 0o755); err != nil {
			return spec, fmt.Errorf("make the directories of machine %s: %w", b.name, err)
		}
	}
	identity, err := identityBinds(b.name)
	if err != nil {
		return spec, err
	}
	spec.Binds = append(spec.Binds, identity...)
	if b.isHost() {
		spec.Binds = append(spec.Binds, machine.Bind{Source: filepath.Join(c.meta.BinDir, "moor-dev"), Target: FSHelper})
	}
	spec.Cgroups, err = cgroup.ProcsFiles(b.name)
	return spec, err
}

// FSHelper is what mount(8) runs for file systems of the types "fuse.*". In a
// host of the bed that is the program moor-dev: it mounts what the emulated DPU
// shows where the kernel of a real host mounts virtio-fs.
const FSHelper = "/sbin/mount.fuse3"

// identityBinds give the machine an identity of its own, which stays, and a
// boot identity, which is new with each boot: by it the kubelet knows that the
// node was rebooted.
func identityBinds(name string) ([]machine.Bind, error) {
	dir := layout.MachineDir(name)
	boot := filepath.Join(dir, "boot-id")
	if err := os.WriteFile(boot, []byte(uuid.NewString()+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("make the boot identity of machine %s: %w", name, err)
	}
	binds := []machine.Bind{{Source: boot, Target: "/proc/sys/kernel/random/boot_id"}}
	if _, err := os.Stat("/etc/machine-id"); err != nil {
		return binds, nil
	}
	id := filepath.Join(dir, "machine-id")
	if _, err := os.Stat(id); errors.Is(err, fs.ErrNotExist) {
		text := strings.ReplaceAll(uuid.NewString(), "-", "") + "\n"
		if err := os.WriteFile(id, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("make the identity of machine %s: %w", name, err)
		}
	}
	return append(binds, machine.Bind{Source: id, Target: "/etc/machine-id"}), nil
}

// bootMachine boots a machine and connects it to the bed's network.
func (c *Cluster) bootMachine(ctx context.Context, b box) error {
	if err := cgroup.Create(b.name); err != nil {
		return err
	}
	spec, err := c.specOf(b)
	if err != nil {
		return err
	}
	init := filepath.Join(c.meta.BinDir, "moor-dev")
	specFile := filepath.Join(layout.MachineDir(b.name), "machine.json")
	identity, err := machine.Boot(ctx, init, spec, specFile, layout.LogFile("machine-"+b.name))
	if err != nil {
		return err
	}
	m := record.Machine{Name: b.name, Identity: identity, IP: b.ip, Booted: time.Now()}
	if err := record.SaveMachine(m); err != nil {
		return err
	}
	if b.name == layout.Hub {
		return connectHub(ctx, identity.PID)
	}
	hub, err := record.LoadMachine(layout.Hub)
	if err != nil {
		return err
	}
	if err := c.connect(ctx, b, identity.PID, hub.Identity.PID); err != nil {
		return err
	}
	return c.joinPair(ctx, b.index)
}

// running returns the record of a machine that is on.
func running(name string) (record.Machine, error) {
	m, err := record.LoadMachine(name)
	if err != nil {
		return m, fmt.Errorf("find machine %s: %w", name, err)
	}
	if !m.Identity.Alive() {
		return m, fmt.Errorf("use machine %s: it is powered off; run moor-dev power-on %[1]s", name)
	}
	return m, nil
}

// Machines lists the machines and whether each is on.
func (c *Cluster) Machines() ([]record.Machine, error) { return record.Machines() }

// IsOn reports whether a machine is on.
func (c *Cluster) IsOn(name string) (bool, error) {
	m, err := record.LoadMachine(name)
	if err != nil {
		return false, fmt.Errorf("find machine %s: %w", name, err)
	}
	return m.Identity.Alive(), nil
}

// PowerOff kills process 1 of a machine, and with it everything in the machine,
// and returns when nothing of it runs. A machine that is off stays so.
//
// The emulated PCIe link of a host is cut the instant before: the kernel that
// all machines share unmounts, and so flushes, what a dying machine has mounted,
// and no host without power does. If the emulator does not answer, the machine
// is powered off all the same, and the error says so.
func (c *Cluster) PowerOff(ctx context.Context, name string) error {
	m, err := record.LoadMachine(name)
	if err != nil {
		return fmt.Errorf("power off machine %s: %w", name, err)
	}
	var uncut error
	if b, err := c.boxOf(name); err == nil && b.isHost() && m.Identity.Alive() {
		uncut = c.setPCIe(ctx, b.index, false)
	}
	if err := m.Identity.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("power off machine %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = poll(ctx, 5*time.Millisecond, func(context.Context) (bool, error) {
		pids, err := cgroup.Members(name)
		wake(pids)
		return len(pids) == 0 && !m.Identity.Alive(), err
	})
	if err != nil {
		return fmt.Errorf("power off machine %s: its processes do not end: %w", name, err)
	}
	return uncut
}

// PowerOn boots a machine that is off and starts again the processes it had,
// in their order. It returns when they are started, not when the node is Ready.
func (c *Cluster) PowerOn(ctx context.Context, name string) error {
	b, err := c.boxOf(name)
	if err != nil {
		return err
	}
	if m, err := record.LoadMachine(name); err == nil && m.Identity.Alive() {
		return nil
	}
	if err := c.PowerOff(ctx, name); err != nil { // a stray process must not meet the new machine
		return err
	}
	// A kubelet that finds the cgroups of pods from before waits for them.
	if err := cgroup.Remove(name); err != nil {
		return fmt.Errorf("power on machine %s: %w", name, err)
	}
	if err := c.bootMachine(ctx, b); err != nil {
		return fmt.Errorf("power on machine %s: %w", name, err)
	}
	if b.isHost() {
		if err := c.setPCIe(ctx, b.index, true); err != nil {
			return fmt.Errorf("power on machine %s: %w", name, err)
		}
	}
	if err := c.startRecorded(ctx, name); err != nil {
		return fmt.Errorf("power on machine %s: %w", name, err)
	}
	if b.index == 0 {
		return nil
	}
	return c.matchPCIe(ctx, b)
}

// startRecorded starts the processes again that a machine had.
func (c *Cluster) startRecorded(ctx context.Context, name string) error {
	processes, err := record.Processes()
	if err != nil {
		return err
	}
	for _, p := range slices.Clone(processes) {
		if p.Machine != name {
			continue
		}
		if err := c.Start(ctx, p.Process); err != nil {
			return err
		}
		if p.Name == containerdName(name) {
			if err := c.awaitContainerd(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// poll asks until the answer is yes, an error comes or the context ends.
func poll(ctx context.Context, every time.Duration, ask func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		done, err := ask(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Package layout fixes where the local test bed keeps its files, which
// addresses it uses and how its machines are named, so that every part of it,
// and the cleaner that runs after a crash, agree without asking one another.
package layout

import (
	"fmt"
	"path/filepath"
	"strings"
)

const (
	// StateDir holds what describes a running bed: records of machines and
	// processes, kubeconfigs and logs. It is visible under the same path in
	// every machine.
	StateDir = "/run/moor-dev"
	// DataDir holds what a bed stores: etcd, images, the disks of machines.
	DataDir = "/var/lib/moor-dev"
	// LockFile is held while a bed is brought up or taken down.
	LockFile = "/run/moor-dev.lock"
	// TargetPort is where the storage target of the hub listens; that of a second DPU cluster
	// has the next port.
	TargetPort = 10809
	// TargetDir is where the hub and the DPUs see the storage target.
	TargetDir = "/var/lib/moor-target"
	// PCIeDir is where a host and its DPU see their emulated PCI link.
	PCIeDir = "/run/moor-pcie"
	// MachineDataDir is a machine's own durable directory, which survives a
	// power-off.
	MachineDataDir = "/var/lib/moor"
	// CgroupParent is the cgroup, in every hierarchy, of all that the bed runs.
	CgroupParent = "moor-dev"
	// RootLink is the only network device of the bed outside its namespaces.
	RootLink = "moor-root0"
	// SNAPSocket is where the emulated SNAP service of a DPU listens, in the
	// DPU.
	SNAPSocket = MachineDataDir + "/snap/providers/nvidia/snap.sock"
	// EmulatorFilePrefix begins the name of every file which an emulated SNAP
	// service puts under a loop device.
	EmulatorFilePrefix = "moor-snapemu."
)

const (
	// Hub is the machine of the control planes and of the bridge.
	Hub = "hub"
	// HubIP is the hub's address, to which every kubeconfig points.
	HubIP = "10.77.0.1"
	// RootIP is the address of the root namespace on the bed's network.
	RootIP = "10.77.0.254"
	// LinkDevice is the name, at both ends, of the link between a DPU and its
	// host, which stands for the network over PCIe (tmfifo). Every pair has
	// one of its own, so all use the same two addresses, which are those that a
	// BlueField and its host have.
	LinkDevice = "tmfifo_net0"
	// LinkDPU is the DPU's address on that link.
	LinkDPU = "192.168.100.2"
	// LinkHost is the host's.
	LinkHost = "192.168.100.1"
	// MaxNodes is how many pairs of host and DPU the address plan has room for.
	MaxNodes = 60
)

// HostName is the name of host i, counted from 1.
func HostName(i int) string { return fmt.Sprintf("host-%d", i) }

// DPUName is the name of the DPU in host i.
func DPUName(i int) string { return fmt.Sprintf("dpu-%d", i) }

// HostIP is the address of host i.
func HostIP(i int) string { return fmt.Sprintf("10.77.0.%d", 10+i) }

// DPUIP is the address of the DPU in host i.
func DPUIP(i int) string { return fmt.Sprintf("10.77.0.%d", 100+i) }

// PodSubnet is the range of the pods of host i.
func PodSubnet(i int) string { return fmt.Sprintf("10.77.%d.0/24", 128+i) }

// DPUPodSubnet is the range of the pods of the DPU in host i.
func DPUPodSubnet(i int) string { return PodSubnet(MaxNodes + i) }

// MachineDir is the directory on the real machine that backs a bed's machine.
func MachineDir(name string) string { return filepath.Join(DataDir, "machines", name) }

// MachinePath is the directory on the real machine behind a durable directory of a bed's machine.
func MachinePath(name, path string) string {
	return filepath.Join(MachineDir(name), strings.ReplaceAll(strings.Trim(path, "/"), "/", "-"))
}

// SharedDir is the directory that host i and its DPU share as PCIeDir. It lies
// under DataDir since StateDir is often a file system without device nodes.
func SharedDir(i int) string { return filepath.Join(DataDir, "pairs", fmt.Sprint(i), "shared") }

// TargetSource is the directory on the real machine behind TargetDir.
func TargetSource() string { return filepath.Join(DataDir, "target") }

// TargetImage is the image of the file system that is mounted there.
func TargetImage() string { return filepath.Join(DataDir, "target.img") }

// TargetBelow is where that file system is mounted instead on a bed that records
// beneath the target. No machine of the bed sees it.
func TargetBelow() string { return filepath.Join(DataDir, "target.below") }

// BelowLogs is the directory of the recorder's logs, see TargetBelow. No machine sees it.
func BelowLogs() string { return filepath.Join(DataDir, "target.writes") }

// LogFile is the log of a process.
func LogFile(process string) string { return filepath.Join(StateDir, "logs", process+".log") }

// Owns reports whether a path lies in one of the bed's directories.
func Owns(path string) bool {
	for _, dir := range []string{StateDir, DataDir, TargetDir, PCIeDir, MachineDataDir} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return strings.HasPrefix(filepath.Base(path), EmulatorFilePrefix)
}

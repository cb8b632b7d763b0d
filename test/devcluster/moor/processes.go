package moor

import (
	"fmt"
	"path/filepath"

	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// Sockets in the hub's own directory; short, as unix sockets must be.
const (
	driverSocket = layout.MachineDataDir + "/csi.sock"
	snapRoot     = layout.MachineDataDir + "/snap"
	pluginRoot   = snapRoot + "/plugins"
	// hostLink is where a host answers its DPU, on the link between the two.
	hostLink = layout.LinkHost + ":9400"
	// functionsSocket ends with the power of a DPU, as what its functions keep does.
	functionsSocket = "/run/moor/functions.sock"
	// recoveryTime is longer than a failover from a SNAP service that is away: what waits is there
	// still when it comes back. (Hosts of SNAP may have no timeout of I/O at all.)
	recoveryTime = "5m"
	nodeSocket   = "/var/lib/kubelet/plugins/" + driver + "/csi.sock"
)

// processes lists every process of Moor on the bed, in the order of starting.
func processes(c bed, configs Kubeconfigs) []devcluster.Process {
	sites := dpuSites(c)
	var out []devcluster.Process
	for _, s := range sites {
		out = append(out, dpuControl(c, s, configs[s.Cluster])...)
	}
	out = append(out, hostControl(c, configs)...)
	for _, s := range sites {
		for _, dpu := range s.DPUs {
			out = append(out, onDPU(c, s, dpu, configs[s.Cluster])...)
		}
	}
	for _, host := range c.Nodes() {
		out = append(out, onHost(c, host, configs[devcluster.HostCluster]))
	}
	return out
}

// process runs one of our programs.
func process(c bed, name, machine, program string, args ...string) devcluster.Process {
	return devcluster.Process{Name: name, Machine: machine, Argv: append([]string{filepath.Join(c.BinDir(), program)}, args...)}
}

// placed are the arguments that a process has on a bed with topology alone.
func placed(c bed, args ...string) []string {
	if !c.Options().Topology {
		return nil
	}
	return args
}

// epochs is the argument of the vendor's programs on a bed whose storage knows epochs.
func epochs(c bed) []string {
	if !c.Options().Epochs {
		return nil
	}
	return []string{"--epochs"}
}

func attachMode(c bed) string {
	return "--attach-mode=" + string(c.Options().AttachMode)
}

// dpuControl is what runs for a DPU cluster: Moor's controller, the vendor
// and what stands beside it.
func dpuControl(c bed, s dpuSite, configs map[string]string) []devcluster.Process {
	vendor := append(placed(c, "--topology="+kit.PlaceKey+"="+kit.PlaceShared, "--topology="+kit.PlaceKey+"="+kit.PlaceAnnex), epochs(c)...)
	socket, admin := s.socket("vendor"), s.socket("target")
	out := []devcluster.Process{
		process(c, s.name("moor-target"), layout.Hub, "local-vendor", "--mode=target", "--target-dir="+s.targetDir(), s.target("--target-listen=:"),
			"--target-admin="+admin, "--medium-log-dir="+layout.TargetDir+"/log", s.metrics(9100)),
		process(c, s.name("local-vendor"), layout.Hub, "local-vendor", append(vendor, "--mode=controller", "--endpoint=unix://"+socket,
			"--target-dir="+s.targetDir(), "--target-admin="+admin, s.target("--target-address="+layout.HubIP+":"),
			"--many-nodes", s.metrics(9101))...),
		c.telling(c.sidecarOf(s, provisionerDPU, socket, configs["local-vendor-controller"])),
		c.sidecarOf(s, resizerDPU, socket, configs["local-vendor-controller"]),
		process(c, s.name("snap-external-attacher"), layout.Hub, "snap-external-attacher", "--csi-address="+socket,
			"--kubeconfig="+configs["snap-external-attacher"], "--namespace="+kit.Namespace, s.metrics(9102), s.health(9103)),
		process(c, s.name("snap-controller"), layout.Hub, "snap-controller", "--kubeconfig="+configs["snap-controller"],
			"--namespace="+kit.Namespace, s.metrics(9104), s.health(9105)),
	}
	return append(out, c.snapshotting("-"+s.Cluster, socket, configs["local-vendor-controller"], configs[snapshotController])...)
}

// hostControl is what runs for the host cluster.
func hostControl(c bed, configs Kubeconfigs) []devcluster.Process {
	host := configs[devcluster.HostCluster]
	out := []devcluster.Process{
		process(c, "scheduler-extender", layout.Hub, "scheduler-extender", "--kubeconfig="+host["scheduler-extender"],
			"--namespace="+kit.Namespace, "--bind-address=:8888", "--metrics-bind-address=:9109", "--health-probe-bind-address=:9110"),
	}
	for _, s := range dpuSites(c) {
		out = append(out, process(c, s.name("snap-host-controller"), layout.Hub, "snap-host-controller", append(s.several(c), "--kubeconfig="+host["snap-host-controller"], attachMode(c),
			"--dpu-cluster-kubeconfig="+configs[s.Cluster]["snap-host-controller"], "--namespace="+kit.Namespace, "--target-namespace="+kit.Namespace,
			// Three hosts that fail over again and again are a series that it would stop.
			"--failover-window=0s", s.metrics(9106), s.health(9107))...))
	}
	out = append(out,
		process(c, "snap-csi-plugin", layout.Hub, "snap-csi-plugin", append(placed(c, "--topology"), "--mode=controller", "--bind-address=unix://"+driverSocket,
			"--kubeconfig="+host["snap-csi-plugin-controller"], attachMode(c), "--namespace="+kit.Namespace, "--metrics-bind-address=:9108")...),
		c.hostProvisioner(host["snap-csi-plugin-controller"]),
		c.sidecar(resizerHost, driverSocket, host["snap-csi-plugin-controller"]),
	)
	if c.Options().AttachMode == dpf.AttachController {
		out = append(out, c.sidecar(attacherHost, driverSocket, host["snap-csi-plugin-controller"]))
	}
	return append(out, c.snapshotting("", driverSocket, host["snap-csi-plugin-controller"], host[snapshotController])...)
}

// functions is the process that keeps the functions of a DPU, on a bed that has it, and the
// argument of the SNAP service that recovers them.
func functions(c bed, dpu string) (keeps []devcluster.Process, arg []string) {
	if !c.Options().KeepFunctions {
		return nil, nil
	}
	arg = []string{"--functions=" + functionsSocket}
	return []devcluster.Process{process(c, "snap-functions-"+dpu, dpu, "snap-emulator", "--keep-functions", "--name="+dpu, arg[0],
		"--fuse-dir="+layout.MachineDataDir+"/fuse", "--recovery-time="+recoveryTime)}, arg
}

// onDPU is what runs on each DPU: SNAP (emulated), the vendor's plugin and
// Moor's node driver.
func onDPU(c bed, s dpuSite, dpu string, configs map[string]string) []devcluster.Process {
	snap := layout.SNAPSocket
	keeps, recovers := functions(c, dpu)
	return append(keeps,
		process(c, "snap-emulator-"+dpu, dpu, "snap-emulator", append(recovers, "--name="+dpu, "--socket="+snap,
			fmt.Sprintf("--vfs=%d", c.Options().VFs), "--pfs=2", "--hotplug-state=/run/moor/functions.json", "--sysfs-root="+layout.PCIeDir+"/sys", "--dev-root="+layout.PCIeDir+"/dev",
			"--fuse-dir="+layout.MachineDataDir+"/fuse", "--medium-log-dir="+layout.TargetDir+"/log",
			// A storage that is away has I/O wait, however long: what ends it is a fence.
			"--io-timeout=24h", "--metrics-bind-address=:9201")...),
		process(c, "local-vendor-"+dpu, dpu, "local-vendor", append(epochs(c), "--mode=plugin", "--plugin-root="+pluginRoot,
			"--snap-socket="+snap, "--target-dir="+s.targetDir(), "--metrics-bind-address=:9202")...),
		process(c, "snap-node-driver-"+dpu, dpu, "snap-node-driver", "--node-name="+dpu, "--kubeconfig="+configs[dpu],
			"--namespace="+kit.Namespace, "--plugin-root="+pluginRoot,
			"--provider-root="+filepath.Join(snapRoot, "providers"), "--host-link="+hostLink, "--metrics-bind-address=:9203", "--health-probe-bind-address=:9204"))
}

// onHost is what runs on each host.
func onHost(c bed, host string, configs map[string]string) devcluster.Process {
	return process(c, "snap-csi-plugin-"+host, host, "snap-csi-plugin", append(placed(c, "--topology"), "--mode=node", "--node-id="+host,
		"--bind-address=unix://"+nodeSocket, "--kubeconfig="+configs[host], attachMode(c),
		"--node-virtiofs-filesystem-type=fuse.virtiofs",
		"--sysfs-root="+layout.PCIeDir+"/sys", "--dev-root="+layout.PCIeDir+"/dev", "--link-address="+hostLink, "--metrics-bind-address=:9301")...)
}

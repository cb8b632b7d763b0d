package main

import "testing"

// beside are the manifests of which the chart has none.
var beside = []string{
	"scheduler/extender.yaml", "scheduler/second-scheduler.yaml", "scheduler/plugin-scheduler-deployment.yaml",
	"pav/workloads/*.yaml", "local/workloads/*.yaml", "dpu/workloads/*.yaml",
}

// looserBeside is looser for what is in those manifests alone.
var looserBeside = map[string]string{
	"scheduler-extender: hostNetwork":   "kube-scheduler, which is on the host's network, finds it on its own loopback",
	"pod-provisioner node: privileged":  "mounts for pods, and hands them the devices that staging pods make",
	"pod-provisioner node: hostPath":    "/dev, the kubelet's directories, and those of staging pods",
	"local-vendor driver: privileged":   "mounts for pods, and makes loop devices and file systems",
	"local-vendor driver: hostPath":     "/dev, the kubelet's directories, and where its volumes are",
	"local-vendor plugin: root":         "the sockets of SNAP and of the plugin are root's",
	"local-vendor plugin: DAC_OVERRIDE": "the socket of SNAP may be of another user of the DPU",
	"local-vendor plugin: hostPath":     "where SNAP's and the plugin's sockets are, and its volumes",
	"local-vendor target: root":         "the files of its volumes are root's",
	"local-vendor target: hostPath":     "where its volumes are",
	"local-vendor: root":                "the files of its volumes are root's",
	"local-vendor: hostPath":            "where its volumes are",
	"csi-provisioner: root":             "the socket of the driver beside it is root's",
	"csi-attacher: root":                "the socket of the driver beside it is root's",
	"csi-resizer: root":                 "the socket of the driver beside it is root's",
	"csi-snapshotter: root":             "the socket of the driver beside it is root's",
	"snap-external-attacher: root":      "the socket of the driver beside it is root's",
	"csi-provisioner: hostPath":         "the socket is where the kubelet finds it",
	"csi-attacher: hostPath":            "the socket is where the kubelet finds it",
	"csi-resizer: hostPath":             "the socket is where the kubelet finds it",
	"csi-snapshotter: hostPath":         "the socket is where the kubelet finds it",
	"snap-emulator: privileged":         "makes loop devices, where a DPU makes PCI devices",
	"snap-emulator: hostPath":           "its socket, /dev, and the tree that it shows as PCI",
}

// TestManifestsHardened: what TestHardened asks of the chart's containers is asked of those in
// the other manifests too.
func TestManifestsHardened(t *testing.T) {
	used := map[string]bool{}
	for _, c := range containersOf(manifests(t, beside...)) {
		wantHardened(t, "deploy", c, used, looser, looserBeside)
	}
	wantUsed(t, looserBeside, used)
}

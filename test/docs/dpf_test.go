package docs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// dpfPaths are the paths by which DPF's charts of all generations start their programs, and
// Moor's program there. (The plugin for NFS as a kind of its own is one that Moor does not have.)
var dpfPaths = map[string]string{
	"/snap-csi-plugin":                 "snap-csi-plugin",
	"/snap-host-controller":            "snap-host-controller",
	"/snap-node-driver":                "snap-node-driver",
	"/snap-controller":                 "snap-controller",
	"/manager":                         "snap-controller",
	"/nvidia-external-attacher":        "snap-external-attacher",
	"/block-storage-vendor-dpu-plugin": "storage-vendor-dpu-plugin",
	"/fs-storage-vendor-dpu-plugin":    "storage-vendor-dpu-plugin",
}

// dpfArguments are what the charts of DPF render as arguments, by generation: of February
// 2025, 25.7, 25.10 and 26.x; and every other flag that those programs have.
var dpfArguments = []struct{ name, path, args string }{
	{"2025-02", "/manager", "--config-namespace=nvidia-storage"},
	{"2025-02 controller", "/snap-csi-plugin", "--mode=controller --bind-address=unix:///csi/csi.sock --controller-target-namespace=dpf-operator-system --controller-dpu-cluster-api-host=10.0.0.1" +
		" --controller-dpu-cluster-api-port=6443 --controller-dpu-cluster-api-token-file=/dpu-cluster-secret/token --controller-dpu-cluster-api-ca-file=/dpu-cluster-secret/ca.crt"},
	{"2025-02 node", "/snap-csi-plugin", "--mode=node --bind-address=unix:///csi/csi.sock --node-id=worker-1 --node-snap-controller-device-id=6001 --node-root-fs=/host"},

	{"25.7", "/snap-controller", "--config-namespace=nvidia-storage --leader-elect=true --leader-election-namespace=nvidia-storage"},
	{"25.7 all", "/snap-controller", "--metrics-bind-address=:8080 --health-probe-bind-address=:8081 --insecure-metrics=false --enable-http2=false"},
	{"25.7", "/snap-host-controller", "--leader-elect=true --namespace=dpf-operator-system --target-namespace=dpf-operator-system --dpucluster-name=dpu-cplane-tenant1 --dpucluster-namespace=dpu-cplane-tenant1"},
	{"25.7 controller", "/snap-csi-plugin", "--mode=controller --bind-address=unix://csi/csi.sock --namespace=dpf-operator-system --v=2"},
	{"25.7 node", "/snap-csi-plugin", "--mode=node --bind-address=unix:///csi/csi.sock --node-id=worker-1 --node-root-fs=/host --node-snap-controller-device-id=6001 --v=2"},
	{"25.7", "/snap-node-driver", "--leader-elect=true"},

	{"25.10", "/snap-host-controller", "--leader-elect=true --namespace=dpf-operator-system --target-namespace=dpf-operator-system"},
	{"25.10 all", "/snap-host-controller", "--metrics-bind-address=:8080 --insecure-metrics --health-probe-bind-address=:8081 --pprof-bind-address= --concurrency=15 --sync-period=10m"},
	{"25.10 all", "/snap-node-driver", "--metrics-bind-address=:8080 --health-probe-bind-address=:8081 --leader-elect=true --insecure-metrics=false --enable-http2"},

	{"26 controller", "/snap-csi-plugin", "--mode=controller --name=csi.snap.nvidia.com --emulation-mode=nvme --bind-address=unix://csi/csi.sock --namespace=dpf-operator-system --v=2"},
	{"26 node", "/snap-csi-plugin", "--mode=node --name=csi-virtiofs.snap.nvidia.com --emulation-mode=virtiofs --bind-address=unix:///csi/csi.sock --node-id=worker-1 --v=2 --max-volumes-per-node=0" +
		" --node-snap-controller-device-id=6001 --node-nvme-load-driver=true --node-nvme-create-vfs=true --node-virtiofs-load-driver=true --node-virtiofs-filesystem-type=virtiofs"},
	{"26", "/nvidia-external-attacher", "--v=5 --csi-address=/csi/csi.sock --leader-election --leader-election-namespace=dpf-operator-system"},
	{"upstream's", "/nvidia-external-attacher", "--timeout=120s --worker-threads=10 --retry-interval-start=1s --retry-interval-max=5m --default-fstype=ext4 --http-endpoint=:8080 --metrics-address=:8081 --metrics-path=/metrics" +
		" --resync=10m --reconcile-sync=1m --max-entries=0 --kube-api-qps=5 --kube-api-burst=10 --leader-election-lease-duration=15s --leader-election-renew-deadline=10s --leader-election-retry-period=5s" +
		" --leader-election-labels=a=b --max-grpc-log-length=-1 --automaxprocs --feature-gates=a=true"},
	{"all", "/block-storage-vendor-dpu-plugin", ""},
	{"all", "/fs-storage-vendor-dpu-plugin", ""},
}

// logging are the flags of Kubernetes' component-base, which DPF's programs have from 25.7 on.
const logging = " --logging-format=json --log-flush-frequency=5s --log-text-split-stream=false --log-text-info-buffer-size=0 --log-json-split-stream --log-json-info-buffer-size=0"

// TestDPFArguments: Moor's programs take the arguments of every generation.
func TestDPFArguments(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range dpfArguments {
		seen[c.path] = true
		t.Run(strings.TrimPrefix(c.path, "/")+" "+c.name, func(t *testing.T) {
			help(t, dpfPaths[c.path], strings.Fields(c.args+logging)...)
		})
	}
	for path := range dpfPaths {
		if !seen[path] {
			t.Errorf("%s: no arguments are tried", path)
		}
	}
}

// TestDPFStart: with those arguments a process gets as far as to ask for a cluster, which it
// does not find here, and has told of the flags without effect, once each.
func TestDPFStart(t *testing.T) {
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range dpfArguments {
		// A node would look for devices of this machine, an attacher waits for its driver, and a plugin serves.
		if strings.Contains(c.args, "--mode=node") || strings.Contains(c.path, "attacher") || strings.Contains(c.path, "vendor") || strings.HasSuffix(c.name, " all") {
			continue
		}
		t.Run(strings.TrimPrefix(c.path, "/")+" "+c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, dpfPaths[c.path]), strings.Fields(c.args+logging)...)
			cmd.Dir, cmd.Env = t.TempDir(), []string{"SNAP_NODE_DRIVER_NODE_NAME=dpu-1"}
			want := "unable to load in-cluster configuration"
			switch c.path {
			case "/snap-host-controller":
				want = "--dpu-cluster-kubeconfig is required" // DPF's reads Secrets in its place
			case "/snap-node-driver":
				cmd.Args = append(cmd.Args, "--plugin-root="+cmd.Dir)
			}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%v, and not %q:\n%s", err, want, out)
			}
			if n := strings.Count(string(out), `"flag":"--log-json-split-stream"`); n != 1 {
				t.Errorf("--log-json-split-stream is told of %d times:\n%s", n, out)
			}
		})
	}
}

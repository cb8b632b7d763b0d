package moor

import (
	"slices"
	"strings"
	"testing"

	"github.com/moor-storage/moor/test/devcluster"
)

// TestEachDPUClusterHasItsOwn: what runs for one has nothing of the other, and a bed with one says nothing of several.
func TestEachDPUClusterHasItsOwn(t *testing.T) {
	for _, two := range []bool{false, true} {
		b, err := newBed(fake{devcluster.Options{TwoDPUClusters: two}})
		if err != nil {
			t.Fatal(err)
		}
		configs := Kubeconfigs{}
		for _, s := range dpuSites(b) {
			configs[s.Cluster] = map[string]string{}
			for _, account := range append(slices.Clone(s.DPUs), dpuAccounts...) {
				configs[s.Cluster][account] = "/of-" + s.Cluster + "/" + account
			}
		}
		all := map[string][]string{}
		for _, p := range processes(b, configs) {
			if all[p.Name] != nil {
				t.Errorf("two processes are called %s", p.Name)
			}
			all[p.Name] = p.Argv
		}
		for name, flags := range map[string]map[string]string{
			"snap-host-controller":      {"--dpucluster-name": map[bool]string{true: "dpu"}[two], "--dpu-cluster-kubeconfig": "/of-dpu/snap-host-controller"},
			"snap-host-controller-dpu2": {"--dpucluster-name": "dpu2", "--dpu-cluster-kubeconfig": "/of-dpu2/snap-host-controller"},
			"snap-node-driver-dpu-1":    {"--kubeconfig": "/of-dpu/dpu-1"},
			"snap-node-driver-dpu-2":    {"--kubeconfig": "/of-dpu2/dpu-2"},
			"csi-provisioner-dpu2":      {"--kubeconfig": "/of-dpu2/local-vendor-controller", "--csi-address": last(all["snap-external-attacher-dpu2"], "--csi-address")},
			"local-vendor-dpu2":         {"--target-dir": last(all["moor-target-dpu2"], "--target-dir"), "--target-admin": last(all["moor-target-dpu2"], "--target-admin")},
		} {
			argv := all[name]
			if there := argv != nil; there != (two || !strings.HasSuffix(name, "2")) {
				t.Errorf("two DPU clusters %v: %s is there: %v", two, name, there)
				continue
			}
			for flag, want := range flags {
				if got := last(argv, flag); argv != nil && got != want {
					t.Errorf("two DPU clusters %v: %s has %s=%q, want %q", two, name, flag, got, want)
				}
			}
		}
		if slices.Contains(all["snap-host-controller"], "--several-dpu-clusters") != two {
			t.Errorf("two DPU clusters %v: %q", two, all["snap-host-controller"])
		}
		if last(all["local-vendor"], "--target-dir") == last(all["local-vendor-dpu2"], "--target-dir") {
			t.Error("two vendors have one directory")
		}
	}
}

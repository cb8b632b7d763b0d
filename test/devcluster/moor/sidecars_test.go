package moor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/devcluster"
)

// fake is a bed of one host that was never brought up, with a DPU in each DPU cluster.
type fake struct{ options devcluster.Options }

func (f fake) Options() devcluster.Options { return f.options }
func (fake) Root() string                  { return filepath.Join("..", "..", "..") }
func (fake) BinDir() string                { return "/bin" }
func (fake) KubeBinDir() string            { return "/kube" }
func (fake) Nodes() []string               { return []string{"host-1"} }

func (f fake) DPUClusters() []devcluster.DPUGroup {
	out := []devcluster.DPUGroup{{Cluster: devcluster.DPUCluster, DPUs: []string{"dpu-1"}}}
	if f.options.TwoDPUClusters {
		out = append(out, devcluster.DPUGroup{Cluster: devcluster.SecondDPUCluster, DPUs: []string{"dpu-2"}})
	}
	return out
}

// sidecars are those of a bed, by name.
func sidecars(t *testing.T, profile string) map[string][]string {
	t.Helper()
	b, err := newBed(fake{devcluster.Options{Nodes: 1, VFs: 1, KubeletProfile: profile, AttachMode: dpf.AttachController, LocalDriver: true}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range append(processes(b, Kubeconfigs{}), localProcesses(b, "/local")...) {
		if strings.HasPrefix(p.Name, "csi-") {
			out[p.Name] = p.Argv
		}
	}
	return out
}

// last is the value of a flag that counts; empty if it is not given.
func last(argv []string, flag string) string {
	for _, arg := range slices.Backward(argv) {
		if value, found := strings.CutPrefix(arg, flag+"="); found {
			return value
		}
	}
	return ""
}

// TestWhatIsMeasuredHasTheShippedFlags: a retry that costs a user a second must
// not cost a benchmark a fifth of it.
func TestWhatIsMeasuredHasTheShippedFlags(t *testing.T) {
	stock := sidecars(t, devcluster.ProfileStock)
	for name, file := range manifests {
		argv := stock[name]
		if argv == nil {
			t.Errorf("%s does not run on the bed", name)
			continue
		}
		shipped, err := shippedFlags(filepath.Join(fake{}.Root(), file), program(name))
		if err != nil {
			t.Fatal(err)
		}
		if len(shipped) < 3 {
			t.Errorf("%s: %s gives %q alone", name, file, shipped)
		}
		for _, flag := range shipped {
			// There is no pod that could own what is told of the room.
			if key, value, found := strings.Cut(flag, "="); found && key != "--capacity-ownerref-level" && last(argv, key) != value {
				t.Errorf("%s is shipped with %s, and has %q", name, flag, argv)
			}
		}
	}
	for name, argv := range stock {
		if last(argv, "--retry-interval-start") != "" || last(argv, "--retry-interval-max") != "" {
			t.Errorf("%s tries again sooner than what is shipped: %q", name, argv)
		}
	}
	if got := last(stock[provisionerHost], "--timeout"); got != "120s" {
		t.Errorf("csi-provisioner has a timeout of %q", got)
	}
}

func TestTestsTryAgainSooner(t *testing.T) {
	for name, argv := range sidecars(t, devcluster.ProfileFast) {
		if last(argv, "--retry-interval-start") != "200ms" {
			t.Errorf("%s has %q", name, argv)
		}
	}
}

func TestShippedFlags(t *testing.T) {
	file := filepath.Join(fake{}.Root(), manifests[provisionerHost])
	flags, err := shippedFlags(file, "csi-provisioner")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range flags {
		if strings.HasPrefix(flag, "--leader-election") || strings.HasPrefix(flag, "--csi-address") {
			t.Errorf("%s belongs to a cluster", flag)
		}
	}
	if _, err := shippedFlags(file, "no-such-container"); err == nil {
		t.Error("a container that is not there is no error")
	}
	if _, err := shippedFlags("none.yaml", "csi-provisioner"); err == nil {
		t.Error("a manifest that is not there is no error")
	}
}

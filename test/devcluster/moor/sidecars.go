package moor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// cluster is what the list of processes depends on.
type cluster interface {
	Options() devcluster.Options
	Root() string
	BinDir() string
	KubeBinDir() string
	Nodes() []string
	DPUClusters() []devcluster.DPUGroup
}

// bed is a cluster with the flags that Kubernetes' CSI sidecars have in the
// manifests of the checkout, by the name of the process.
type bed struct {
	cluster
	shipped map[string][]string
}

// Names of the processes of sidecars whose flags are in a manifest.
const (
	provisionerHost = "csi-provisioner"
	resizerHost     = "csi-resizer"
	attacherHost    = "csi-attacher"
	provisionerDPU  = "csi-provisioner-dpu"
	resizerDPU      = "csi-resizer-dpu"

	provisionerLocal = "csi-provisioner-local"
	attacherLocal    = "csi-attacher-local"
	resizerLocal     = "csi-resizer-local"
	snapshotterLocal = "csi-snapshotter-local"

	localManifest = "deploy/local/workloads/local-driver.yaml"
)

// manifests has those manifests, by process.
var manifests = map[string]string{
	provisionerHost: "deploy/host/workloads/snap-csi-plugin-controller.yaml",
	resizerHost:     "deploy/host/workloads/snap-csi-plugin-controller.yaml",
	attacherHost:    "deploy/host/workloads/snap-csi-plugin-controller.yaml",
	provisionerDPU:  "deploy/dpu/workloads/local-vendor-controller.yaml",
	resizerDPU:      "deploy/dpu/workloads/local-vendor-controller.yaml",

	provisionerLocal: localManifest, attacherLocal: localManifest, resizerLocal: localManifest, snapshotterLocal: localManifest,
}

// program of a process: the name without the cluster, or the driver that it is for.
func program(process string) string {
	return strings.TrimSuffix(strings.TrimSuffix(process, "-dpu"), "-local")
}

// newBed reads the manifests.
func newBed(c cluster) (bed, error) {
	out := bed{cluster: c, shipped: map[string][]string{}}
	for process, file := range manifests {
		flags, err := shippedFlags(filepath.Join(c.Root(), file), program(process))
		if err != nil {
			return out, fmt.Errorf("find the flags of %s: %w", process, err)
		}
		out.shipped[process] = flags
	}
	return out, nil
}

// shippedFlags are those of a container of a Deployment in a manifest, without
// what depends on where it runs. There is one of each here, so none is elected.
func shippedFlags(file, container string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no Deployment with a container %s", file, container)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		var d appsv1.Deployment
		if err := yaml.Unmarshal(document, &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name == container {
				return slices.DeleteFunc(c.Args, local), nil
			}
		}
	}
}

// local reports whether a flag depends on where the sidecar runs.
func local(flag string) bool {
	return strings.HasPrefix(flag, "--csi-address=") || strings.HasPrefix(flag, "--leader-election")
}

// quick are the flags of sidecars on a bed for tests: what fails is tried again
// sooner. The last flag of a name counts.
var quick = []string{"--retry-interval-start=200ms", "--retry-interval-max=5s"}

// sidecar runs one of Kubernetes' CSI sidecars as it is shipped, or quicker.
func (c bed) sidecar(name, socket, kubeconfig string, args ...string) devcluster.Process {
	argv := append([]string{filepath.Join(c.KubeBinDir(), program(name)), "--csi-address=" + socket, "--kubeconfig=" + kubeconfig}, c.shipped[name]...)
	argv = append(argv, args...)
	if !c.Options().AsShipped() {
		argv = append(argv, quick...)
	}
	return devcluster.Process{Name: name, Machine: layout.Hub, Argv: argv}
}

// sidecarOf runs one for a DPU cluster, with its name at the end.
func (c bed) sidecarOf(s dpuSite, name, socket, kubeconfig string) devcluster.Process {
	p := c.sidecar(name, socket, kubeconfig)
	p.Name = strings.TrimSuffix(name, devcluster.DPUCluster) + s.Cluster
	return p
}

// telling is a csi-provisioner that tells how much room there is, too. There is no
// pod here that could own what it tells.
func (bed) telling(p devcluster.Process) devcluster.Process {
	p.Argv = append(p.Argv, "--enable-capacity", "--capacity-poll-interval=10s", "--capacity-for-immediate-binding", "--capacity-ownerref-level=-1")
	p.Env = []string{"NAMESPACE=" + kit.Namespace}
	return p
}

// hostProvisioner makes volumes for pods. It tells the room of places, so nothing
// where there are none.
func (c bed) hostProvisioner(kubeconfig string) devcluster.Process {
	p := c.sidecar(provisionerHost, driverSocket, kubeconfig, placed(c, "--strict-topology", "--immediate-topology=false")...)
	if !c.Options().AsShipped() {
		p.Argv = append(p.Argv, "--timeout=30s")
	}
	if c.Options().Topology {
		return c.telling(p)
	}
	return p
}

// snapshotting is what turns VolumeSnapshots of one cluster into calls of the
// driver at a socket. No manifest of Moor's has it: the rates are those of the
// sidecars, all else that the programs take by default.
func (c bed) snapshotting(suffix, socket, driver, controller string) []devcluster.Process {
	flags := []string{"--kube-api-qps=100", "--kube-api-burst=200", "--feature-gates=CSIVolumeGroupSnapshot=true"}
	if !c.Options().AsShipped() {
		flags = append(flags, quick...)
	}
	return []devcluster.Process{
		process(c, "snapshot-controller"+suffix, layout.Hub, "snapshot-controller", append([]string{"--kubeconfig=" + controller}, flags...)...),
		process(c, "csi-snapshotter"+suffix, layout.Hub, "csi-snapshotter", append([]string{"--kubeconfig=" + driver, "--csi-address=" + socket}, flags...)...),
	}
}

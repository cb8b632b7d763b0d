//go:build e2e

package install

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/cleanup"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/specs"
)

const (
	// patience is how long anything that must happen may take on a slow, busy machine.
	patience = 5 * time.Minute
	tick     = 200 * time.Millisecond
	// registry is where Moor's images are. Each is there by the tag that the chart has and by another.
	registry, thisTag, nextTag = "ghcr.io/moor-storage/", ":dev", ":next"
	// pcie is where a host of the bed has what the kernel of a real one shows in /sys and /dev: in
	// a directory that snap-csi-plugin's pod sees of its host, so that the chart need not change.
	pcie = "/var/lib/kubelet/plugins/csi.snap.nvidia.com/pcie"
	// snapDirectory is where SNAP and plugins meet on a DPU.
	snapDirectory = "/var/lib/nvidia/storage/snap"
	// localTarget is where the reference vendor's manifests have their storage.
	localTarget = "/var/lib/moor/local"
)

// moorImages are those that the chart's releases and the manifests beside it name.
var moorImages = []string{
	"snap-host-controller", "snap-csi-plugin-controller", "snap-csi-plugin-node", "snap-controller", "snap-node-driver", "snap-external-attacher", "local-vendor",
	"pod-provisioner", "scheduler-extender", "moor-scheduler",
}

// sidecars are Kubernetes' own programs of the manifests, by image.
var sidecars = map[string]string{
	"csi-provisioner": "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0",
	"csi-resizer":     "registry.k8s.io/sig-storage/csi-resizer:v2.2.0",
	"csi-attacher":    "registry.k8s.io/sig-storage/csi-attacher:v4.12.0",
	snapshotter:       "registry.k8s.io/sig-storage/csi-snapshotter:v8.6.0",
	"kube-scheduler":  "registry.k8s.io/kube-scheduler:v1.35.4",
}

// commands is where these images have their program: manifests name kube-scheduler without a directory.
const snapshotter, commands = "csi-snapshotter", "/usr/local/bin/"

var (
	bed     *devcluster.Cluster
	clients kit.Clients
	// tools has helm and csi-snapshotter, work is where commands of the pages run.
	tools, work string
	snapshots   kubebuild.SnapshotterManifests
)

func TestInstall(t *testing.T) { specs.Run(t, "Moor as it is installed", nil) }

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	bed, err = devcluster.Load()
	Expect(err).NotTo(HaveOccurred(), "the test bed must be up, with --bare --dpu-pods: run make install-test")
	Expect(bed.Options().Bare && bed.Options().DPUPods).To(BeTrue(), "the bed must have no Moor, and DPUs with kubelets: run make install-test")
	clients, err = kit.Connect(bed)
	Expect(err).NotTo(HaveOccurred())
	cache, err := kubebuild.CacheDir()
	Expect(err).NotTo(HaveOccurred())
	tools, work = filepath.Join(cache, "install", "tools"), GinkgoT().TempDir()
	Expect(os.MkdirAll(tools, 0o755)).To(Succeed())
	Expect(shell(ctx, bed.Root(), "go -C hack/chart build -o "+tools+"/ helm.sh/helm/v3/cmd/helm")).To(Succeed())
	snapshots, err = kubebuild.Snapshotter(ctx, bed.Root(), tools, GinkgoWriter) // a bed without Moor has none
	Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"deploy", "crds"} {
		Expect(os.Symlink(filepath.Join(bed.Root(), name), filepath.Join(work, name))).To(Succeed())
	}
	Expect(os.WriteFile(filepath.Join(work, "emulated.yaml"), []byte(emulated), 0o644)).To(Succeed())
	made := filepath.Join(bed.Root(), os.Getenv("IMAGES"))
	if made == bed.Root() {
		made = filepath.Join(cache, "install", "images")
		Expect(Make(ctx, bed.Root(), made)).To(Succeed())
	}
	loadImages(ctx, made)
	connectPods(ctx)
	prepareMachines(ctx, filepath.Join(made, "programs"))
})

// loadImages makes the images of the manifests of what hack/images.sh has put into a directory, and
// brings them to the nodes.
func loadImages(ctx context.Context, directory string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(bed.Root(), "deploy", "image", "Dockerfile"))
	Expect(err).NotTo(HaveOccurred())
	user, err := User(string(text))
	Expect(err).NotTo(HaveOccurred())
	for _, name := range moorImages {
		files, err := Files(filepath.Join(directory, "images", name))
		Expect(err).NotTo(HaveOccurred())
		Expect(bed.LoadImage(ctx, name, ociimage.Image{Names: []string{registry + name + thisTag, registry + name + nextTag}, User: user, Files: files, Bare: true})).To(Succeed())
	}
	for name, reference := range sidecars {
		content, err := os.ReadFile(filepath.Join(bed.KubeBinDir(), name))
		if name == snapshotter {
			content, err = os.ReadFile(filepath.Join(tools, name))
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(bed.LoadImage(ctx, name, ociimage.Image{
			Names: []string{reference}, Entrypoint: []string{commands + name}, Files: []ociimage.File{{Path: commands + name, Content: content, Mode: 0o755}},
		})).To(Succeed())
	}
}

// allClusters are the clients of all clusters of the bed, by their names.
func allClusters() map[string]client.Client {
	out := map[string]client.Client{devcluster.HostCluster: clients.Host}
	for _, of := range bed.DPUClusters() {
		out[of.Cluster] = clients.In(of.Cluster)
	}
	return out
}

// connectPods lets pods reach the Service of their API server.
func connectPods(ctx context.Context) {
	GinkgoHelper()
	for name, c := range allClusters() {
		inMachine(ctx, layout.Hub, "iptables -t nat -A PREROUTING "+forward(ctx, c, "default", "kubernetes", strings.TrimPrefix(bed.Config(name).Host, "https://")))
	}
}

// connectTarget lets DPUs reach the Service of the reference vendor's storage in their cluster.
func connectTarget(ctx context.Context, of devcluster.DPUGroup) {
	GinkgoHelper()
	c, address := clients.In(of.Cluster), ""
	Eventually(func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(kit.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "local-vendor-controller"})
		if err == nil && len(pods.Items) == 1 {
			address = pods.Items[0].Status.PodIP
		}
		return address, err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
	rule := forward(ctx, c, kit.Namespace, "local-vendor-target", net.JoinHostPort(address, "10809"))
	for _, dpu := range of.DPUs {
		inMachine(ctx, dpu, "iptables -t nat -A OUTPUT "+rule)
	}
}

// forward is a rule of iptables by which what is sent to a Service goes to an address, as kube-proxy
// has it on a cluster: the bed has none.
func forward(ctx context.Context, c client.Client, namespace, name, to string) string {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, service)).To(Succeed())
	return fmt.Sprintf("-d %s -p tcp --dport %d -j DNAT --to-destination %s", service.Spec.ClusterIP, service.Spec.Ports[0].Port, to)
}

// prepareMachines has each machine as one of a real cluster is before Moor is installed: the DPUs
// with SNAP, which is the emulator, hosts with what it shows, and one host of the control plane
// without a DPU of Moor's.
func prepareMachines(ctx context.Context, programs string) {
	GinkgoHelper()
	for _, directory := range []string{snapDirectory, "/lib/modules"} {
		Expect(cleanup.MakeMountpoint(directory)).To(Succeed())
	}
	for i, dpu := range bed.DPUs() {
		target := layout.TargetDir
		if of := bed.DPUClusters(); len(of) > 1 && slices.Contains(of[1].DPUs, dpu) {
			target = filepath.Join(target, devcluster.SecondDPUCluster) // a directory has one vendor
		}
		inMachine(ctx, dpu, "mkdir -p /var/lib/moor/snap "+localTarget+" "+target+
			" && mount --bind /var/lib/moor/snap "+snapDirectory+" && mount --bind "+target+" "+localTarget)
		Expect(bed.Start(ctx, devcluster.Process{Name: "snap-emulator-" + dpu, Machine: dpu, Argv: []string{
			filepath.Join(programs, "snap-emulator"), "--name=" + dpu, "--socket=" + layout.SNAPSocket, fmt.Sprintf("--vfs=%d", bed.Options().VFs), "--pfs=2",
			"--hotplug-state=/run/moor/functions.json", "--sysfs-root=" + layout.PCIeDir + "/sys", "--dev-root=" + layout.PCIeDir + "/dev",
			"--fuse-dir=" + layout.MachineDataDir + "/fuse", "--io-timeout=24h", "--metrics-bind-address=:9201",
		}})).To(Succeed())
		showFunctions(ctx, bed.Nodes()[i])
	}
	control := &corev1.Node{}
	control.Name = bed.Nodes()[len(bed.Nodes())-1]
	patch := `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}}`
	Expect(clients.Host.Patch(ctx, control, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// showFunctions has a host see what its DPU shows, until it loses its power.
func showFunctions(ctx context.Context, host string) {
	GinkgoHelper()
	inMachine(ctx, host, "mkdir -p "+pcie+" && { mountpoint -q "+pcie+" || mount --bind "+layout.PCIeDir+" "+pcie+"; }")
}

func inMachine(ctx context.Context, machine, script string) {
	GinkgoHelper()
	_, err := bed.Exec(ctx, machine, "sh", "-ec", script)
	Expect(err).NotTo(HaveOccurred())
}

// emulated has the values by which a host of the bed finds the emulated functions.
const emulated = `host:
  snapCsiPlugin:
    node:
      extraArgs: {--sysfs-root: ` + pcie + `/sys, --dev-root: ` + pcie + `/dev}
`

// withEmulation is a command of the page that installs the host cluster's release with those
// values too; others stay as they are.
func withEmulation(step Step) string {
	return strings.ReplaceAll(step.Script, "--set cluster=host", "--set cluster=host -f emulated.yaml")
}

// follow runs the commands below a heading of docs/installing.md, each with access to its cluster; change,
// if it is not nil, makes others of them.
func follow(ctx context.Context, heading string, change func(Step) string) {
	GinkgoHelper()
	followOn(ctx, "installing.md", heading, "", change)
}

// followOn runs those of any page; cluster is as Steps has it.
func followOn(ctx context.Context, page, heading, cluster string, change func(Step) string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(bed.Root(), "docs", page))
	Expect(err).NotTo(HaveOccurred())
	steps, err := Steps(string(text), heading, cluster)
	Expect(err).NotTo(HaveOccurred())
	for _, step := range steps {
		if clients.In(step.Cluster) == nil {
			continue // the second of DPU clusters, where there is one
		}
		script := step.Script
		if change != nil {
			script = change(step)
		}
		run(ctx, step.Cluster, script)
	}
}

// run runs a script with access to a cluster.
func run(ctx context.Context, cluster, script string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "KUBECONFIG="+bed.Kubeconfig(cluster), "PATH="+strings.Join([]string{tools, bed.KubeBinDir(), os.Getenv("PATH")}, ":"))
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Printf("%s cluster:\n%s%s\n", cluster, script, out)
	Expect(err).NotTo(HaveOccurred(), "in the %s cluster:\n%s%s", cluster, script, out)
}

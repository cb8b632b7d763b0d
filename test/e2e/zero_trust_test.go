//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// untrusted are the hosts of the test, and mountpoint is a directory of each.
var untrusted = []string{"host-2", "host-3"}

const mountpoint = layout.MachineDataDir + "/zero-trust"

// distrust ends everything on the hosts that has an account, and says so in
// their DPUStorageNodes; when the test ends it makes them Nodes again.
func distrust(ctx context.Context, hosts []string) {
	GinkgoHelper()
	DeferCleanup(trustAgain, hosts, NodeTimeout(patience))
	for _, host := range hosts {
		mode(ctx, host, moorv1alpha1.ZeroTrust)
		for _, process := range withAccounts(host) {
			Expect(bed.Kill(process, syscall.SIGKILL)).To(Succeed())
		}
		words := inside(ctx, host, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
		Expect(words).NotTo(ContainSubstring("--kubeconfig"), "a process on "+host+" has an account")
	}
}

// withAccounts are the processes of a host that hold one.
func withAccounts(host string) []string {
	out := []string{"snap-csi-plugin-" + host, "kubelet-" + host}
	if bed.Options().Pods {
		out = append(out, "pod-provisioner-"+host)
	}
	return out
}

func mode(ctx context.Context, host string, to moorv1alpha1.HostMode) {
	GinkgoHelper()
	node := &moorv1alpha1.DPUStorageNode{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: host}, node)).To(Succeed())
	_, err := kube.Patch(ctx, clients.Host, node, func(n *moorv1alpha1.DPUStorageNode) { n.Spec.HostMode = to })
	Expect(err).NotTo(HaveOccurred())
}

func trustAgain(ctx context.Context, hosts []string) {
	for _, host := range hosts {
		mode(ctx, host, moorv1alpha1.Trusted)
		for _, process := range withAccounts(host) {
			Expect(bed.Restart(ctx, process)).To(Succeed())
		}
	}
	for _, host := range hosts {
		Eventually(serving(host)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue(), host+" is a Node again")
	}
}

// serving reports whether pods with volumes can run on a host.
func serving(host string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		core, known, node := &corev1.Node{}, &storagev1.CSINode{}, &moorv1alpha1.DPUStorageNode{}
		for _, o := range []client.Object{core, known, node} {
			if err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, o); err != nil {
				return false, err
			}
		}
		ready := false
		for _, c := range core.Status.Conditions {
			ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		return ready && len(core.Spec.Taints) == 0 && len(known.Spec.Drivers) > 0 &&
			meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionReady), nil
	}
}

// inside runs a command in a machine, without any of our environment.
func inside(ctx context.Context, machine string, argv ...string) string {
	GinkgoHelper()
	out, err := bed.Exec(ctx, machine, argv...)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// moorHost is moor-host with the emulated PCIe link of a machine.
func moorHost(args ...string) []string {
	roots := []string{"--sysfs-root=" + layout.PCIeDir + "/sys", "--dev-root=" + layout.PCIeDir + "/dev", "--virtiofs-filesystem-type=fuse.virtiofs"}
	return append(append([]string{filepath.Join(bed.BinDir(), "moor-host")}, args...), roots...)
}

// showsUUID waits for an attachment and returns the UUID its host sees.
func showsUUID(ctx context.Context, o *storagev1alpha1.DPUVolumeAttachment) string {
	GinkgoHelper()
	Eventually(shown(o)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
	Expect(o.Status.DPU.NVMeAttrs).NotTo(BeNil())
	return o.Status.DPU.NVMeAttrs.NamespaceUUID
}

// table writes a machine's table for moor-host watch.
func table(machine, text string) {
	GinkgoHelper()
	file := filepath.Join(layout.MachineDir(machine), "var-lib-moor", "moor-host.tab")
	Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	DeferCleanup(os.Remove, file)
}

var _ = Describe("hosts that hold no account at all", func() {
	It("mount what their DPUs show, by moor-host alone, and hand a volume on", func(ctx context.Context) {
		ns := newNamespace(ctx)
		distrust(ctx, untrusted)
		Expect(kit.Apply(ctx, clients.Host, filepath.Join(bed.Root(), "deploy", "examples", "zero-trust.yaml"))).To(Succeed())
		volume := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Name: "database", Namespace: kit.Namespace}}
		DeferCleanup(func(ctx context.Context) { remove(ctx, volume) }, NodeTimeout(patience))
		first := byHand("database-host-2", "host-2", "database")
		DeferCleanup(func(ctx context.Context) { remove(ctx, first) }, NodeTimeout(patience))
		id := showsUUID(ctx, first)
		Expect(inside(ctx, "host-2", moorHost("list")...)).To(ContainSubstring(id))
		vendor := vendorVolume(ctx, "database")

		By("formatting, mounting and writing on the first host")
		inside(ctx, "host-2", moorHost("mount", "uuid="+id, mountpoint)...)
		inside(ctx, "host-2", moorHost("mount", "uuid="+id, mountpoint)...) // changes nothing
		inside(ctx, "host-2", "sh", "-c", "echo acknowledged | dd of="+mountpoint+"/text conv=fsync")
		Eventually(hostAlive("host-2")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal("True/SeenAlive"))
		inside(ctx, "host-2", moorHost("umount", mountpoint)...)
		remove(ctx, first)
		Expect(inside(ctx, "host-2", moorHost("list")...)).NotTo(ContainSubstring(id), "taken away")

		By("reading it back on the second one, where no other file system is made of it")
		second := byHand(ns.name+"-second", "host-3", "database")
		Expect(clients.Host.Create(ctx, second)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { remove(ctx, second) }, NodeTimeout(patience))
		id = showsUUID(ctx, second)
		_, err := bed.Exec(ctx, "host-3", moorHost("mount", "uuid="+id, mountpoint, "--fstype=xfs")...)
		Expect(err).To(MatchError(ContainSubstring("it is not formatted, lest data be lost")))
		inside(ctx, "host-3", moorHost("mount", second.Status.DPU.PCIAddress, mountpoint)...)
		Expect(inside(ctx, "host-3", "cat", mountpoint+"/text")).To(Equal("acknowledged\n"))
		inside(ctx, "host-3", "sh", "-c", "echo more | dd of="+mountpoint+"/more conv=fsync")
		inside(ctx, "host-3", moorHost("umount", mountpoint)...)
		writes, err := kit.TargetLog(vendor)
		Expect(err).NotTo(HaveOccurred())
		Expect(writersInOrder(writes)).To(Equal([]string{"dpu-2", "dpu-3"}), "one writer after the other")

		By("watching: mounted when it is shown, unmounted when it is taken away under the mount")
		table("host-3", "uuid="+id+" "+mountpoint+" ext4 noatime\n")
		watching := devcluster.Process{Name: "moor-host-host-3", Machine: "host-3", Argv: moorHost("watch", "--table="+layout.MachineDataDir+"/moor-host.tab")}
		Expect(bed.Start(ctx, watching)).To(Succeed())
		DeferCleanup(bed.Remove, watching.Name)
		mounts := func(ctx context.Context) (string, error) {
			out, err := bed.Exec(ctx, "host-3", "cat", "/proc/mounts")
			return string(out), err
		}
		Eventually(mounts).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(" " + mountpoint + " ext4 "))
		Expect(strings.TrimSpace(inside(ctx, "host-3", "cat", mountpoint+"/more"))).To(Equal("more"))
		remove(ctx, second)
		Eventually(mounts).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(ContainSubstring(" " + mountpoint + " "))

		By("sharing a file system that their DPUs show by virtio-fs")
		tags := shareByHand(ctx, ns.name+"-files")
		for host, tag := range tags {
			Expect(inside(ctx, host, moorHost("list")...)).To(ContainSubstring("tag=" + tag))
			inside(ctx, host, moorHost("mount", "tag="+tag, mountpoint)...)
		}
		inside(ctx, "host-2", "sh", "-c", "echo shared > "+mountpoint+"/text")
		Expect(inside(ctx, "host-3", "cat", mountpoint+"/text")).To(Equal("shared\n"))
		for host := range tags {
			inside(ctx, host, moorHost("umount", mountpoint)...)
		}
	})
})

// shareByHand makes a file system, shows it to the hosts that hold no account,
// and returns its tag by host.
func shareByHand(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	volume := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kit.Namespace}}
	volume.Spec = storagev1alpha1.DPUVolumeSpec{
		DPUStoragePolicyName: "local",
		AccessModes:          []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
	}
	Expect(clients.Host.Create(ctx, volume)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { remove(ctx, volume) }, NodeTimeout(patience))
	tags := map[string]string{}
	for _, host := range untrusted {
		o := byHand(name+"-"+host, host, name)
		o.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
		Expect(clients.Host.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { remove(ctx, o) }, NodeTimeout(patience))
		Eventually(shown(o)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
		Expect(o.Status.DPU.VirtioFSAttrs).NotTo(BeNil())
		tags[host] = o.Status.DPU.VirtioFSAttrs.FilesystemTag
	}
	return tags
}

// hostAlive is the condition of a host, as status/reason.
func hostAlive(host string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node); err != nil {
			return "", err
		}
		c := meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionHostAlive)
		if c == nil {
			return "", nil
		}
		return string(c.Status) + "/" + c.Reason, nil
	}
}

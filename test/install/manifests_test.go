//go:build e2e

package install

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

var _ = Describe("what has manifests alone", func() {
	It("serves pods as volumes where there are no DPUs, and is removed, by the page", func(ctx context.Context) {
		followOn(ctx, "pods-as-volumes.md", "## In five minutes", "host", nil)
		settledIn(ctx, clients.Host, kit.PodsNamespace)
		Expect(said(ctx, "greeting", "cat /greeting/greeting")).To(Equal("Good morning, greeting\n"))
		Expect(onHosts("pav", "*", "*")).NotTo(BeEmpty(), "where the staging pod has left the volume")
		followOn(ctx, "pods-as-volumes.md", "## Removing it", "host", nil)
		noKinds(ctx, "pav.albertofaria.github.io", "storage.moor.dev")
		Expect(onHosts("pav", "*", "*")).To(BeEmpty(), "nothing of a helper pod is left")
	}, NodeTimeout(3*patience))

	It("has the driver of one machine, by its page, which goes on after its pod has been deleted", func(ctx context.Context) {
		Expect(kit.Apply(ctx, clients.Host, snapshots.CRDs...)).To(Succeed())
		followOn(ctx, filepath.Join("components", "local-vendor.md"), "## `--mode driver`", "host", func(s Step) string {
			return strings.ReplaceAll(s.Script, "NODE", bed.Nodes()[0])
		})
		settledIn(ctx, clients.Host, kit.LocalNamespace)
		Eventually(phase).WithContext(ctx).WithArguments("scratch").WithTimeout(patience).WithPolling(tick).Should(Equal(corev1.PodSucceeded), "the example of an inline volume")

		claimOf(ctx, "directory", "local-directory")
		uid := pod(ctx, "local", "directory", bed.Nodes()[0], appendLines).UID
		before := writes(ctx, "local")
		Expect(clients.Host.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(kit.LocalNamespace))).To(Succeed())
		settledIn(ctx, clients.Host, kit.LocalNamespace)
		lines := writes(ctx, "local")
		undisturbed(ctx, "local", uid)
		report("while the pod of the driver of one machine was made anew the longest time between two acknowledged writes was %.2f s", Longest(lines, len(before)).Seconds())
		Expect(Complete(said(ctx, "local", "cat "+journal), lines)).To(Succeed())

		claimOf(ctx, "device", "local-device")
		pod(ctx, "second", "device", bed.Nodes()[0], "sleep 1000000")
		Expect(onHosts("local", "*.img")).To(HaveLen(2))
		for _, name := range []string{"local", "second"} {
			Expect(clients.Host.Delete(ctx, &corev1.Pod{ObjectMeta: objectMeta(name)})).To(Succeed())
		}
		for _, name := range []string{"directory", "device"} {
			Expect(clients.Host.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(name)})).To(Succeed())
		}
		Eventually(onHosts).WithContext(ctx).WithArguments("local", "*.img").WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		run(ctx, "host", "kubectl delete -f deploy/examples/local-driver.yaml\nkubectl delete -f deploy/local/workloads -f deploy/local/snapshots -f deploy/local\n")
	}, NodeTimeout(3*patience))
})

// podsAsVendor has a vendor of DPUs whose volumes pods make, installed by manifests beside the chart's
// releases, and removed again.
func podsAsVendor(ctx context.Context) {
	GinkgoHelper()
	const manifests = " -f deploy/pav -f crds/pav -f deploy/dpu/pod-provisioner-rbac.yaml -f deploy/pav/workloads/pod-provisioner-controller.yaml -f deploy/dpu/workloads/pod-provisioner-dpu.yaml"
	run(ctx, "dpu", "kubectl apply"+manifests+"\nkubectl rollout status -n moor-pods deployment/pod-provisioner-controller\n")
	settledIn(ctx, clients.DPU, kit.PodsNamespace)
	testdata := filepath.Join(bed.Root(), "test", "install", "testdata")
	run(ctx, "dpu", "kubectl apply -f "+filepath.Join(testdata, "loop-dpu.yaml")+"\n")
	run(ctx, "host", "kubectl apply -f "+filepath.Join(testdata, "loop-host.yaml")+"\n")
	claimOf(ctx, "loop", "loop")
	pod(ctx, "looped", "loop", bed.Nodes()[0], "sleep 1000000")
	Expect(said(ctx, "looped", "echo here >/data/x && sync /data/x && cat /data/x")).To(Equal("here\n"))
	var stagings moorv1alpha1.PodStagingList
	Expect(clients.DPU.List(ctx, &stagings)).To(Succeed())
	Expect(stagings.Items).To(ConsistOf(HaveField("Spec.NodeName", bed.DPUs()[0])))

	stored := func() ([]string, error) { return filepath.Glob(filepath.Join(layout.TargetSource(), "pav-*")) }
	Expect(stored()).To(HaveLen(1))
	Expect(clients.Host.Delete(ctx, &corev1.Pod{ObjectMeta: objectMeta("looped")})).To(Succeed())
	Expect(clients.Host.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta("loop")})).To(Succeed())
	Eventually(stored).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty(), "the deletion pod has removed the file")
	run(ctx, "host", "kubectl delete -f "+filepath.Join(testdata, "loop-host.yaml")+"\n")
	run(ctx, "dpu", "kubectl delete -f "+filepath.Join(testdata, "loop-dpu.yaml")+"\nkubectl delete"+manifests+"\n")
}

// onHosts are the files beneath the data of Moor on all hosts that match a pattern.
func onHosts(pattern ...string) ([]string, error) {
	var out []string
	for _, host := range bed.Nodes() {
		found, err := filepath.Glob(filepath.Join(append([]string{layout.MachinePath(host, layout.MachineDataDir)}, pattern...)...))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// said is what a command in a pod's first container prints.
func said(ctx context.Context, pod, command string) string {
	GinkgoHelper()
	out, err := kit.Exec(ctx, bed, client.ObjectKey{Namespace: namespace, Name: pod}, command)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// phase is that of a pod.
func phase(ctx context.Context, name string) (corev1.PodPhase, error) {
	p := &corev1.Pod{}
	err := clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)
	return p.Status.Phase, err
}

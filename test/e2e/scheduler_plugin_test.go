//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// pluginScheduler is the second scheduler of deploy/scheduler/plugin-scheduler.yaml.
const pluginScheduler = "moor-plugin-scheduler"

// startPluginScheduler builds and starts kube-scheduler with Moor's plugin, as
// deployed and under its account, until the test ends.
func startPluginScheduler(ctx context.Context) {
	GinkgoHelper()
	Expect(kubebuild.Scheduler(ctx, bed.Root(), bed.BinDir(), GinkgoWriter)).To(Succeed())
	Expect(kit.Apply(ctx, clients.Host, filepath.Join(bed.Root(), "deploy", "scheduler", "plugin-scheduler.yaml"))).To(Succeed())
	kubeconfig, err := bed.WriteKubeconfig(ctx, devcluster.HostCluster, kit.Namespace, pluginScheduler)
	Expect(err).NotTo(HaveOccurred())
	shipped := &corev1.ConfigMap{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: pluginScheduler}, shipped)).To(Succeed())
	config := filepath.Join(layout.DataDir, pluginScheduler+".yaml")
	Expect(os.WriteFile(config, fmt.Appendf(nil, "%sclientConnection: {kubeconfig: %s}\n", shipped.Data["config.yaml"], kubeconfig), 0o644)).To(Succeed())
	// Its port would be that of the cluster's own scheduler on the same machine.
	process := devcluster.Process{Name: pluginScheduler, Machine: layout.Hub, Argv: []string{kubebuild.SchedulerProgram, "--config=" + config, "--secure-port=0"}}
	Expect(bed.Start(ctx, process)).To(Succeed())
	DeferCleanup(bed.Remove, process.Name)
}

var _ = Describe("the scheduler with the plugin", slow, func() {
	It("places a pod where its volume's replica is, and elsewhere while no pod may go there", func(ctx context.Context) {
		startPluginScheduler(ctx)
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "maxShares": "2", "replicaReleaseAfter": "1m"})
		data := ns.claim(ctx, claim{name: "data", class: class})
		first := ns.podBy(ctx, pluginScheduler, "first", "", data)
		old := runs(ctx, first)
		volume := volumeOf(ctx, data)
		Eventually(replicaOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		warm, err := replicaOf(volume)(ctx)
		Expect(err).NotTo(HaveOccurred())
		sh(ctx, first, "echo before | dd of=/data-data/journal conv=fsync 2>/dev/null")

		By("closing " + old.Spec.NodeName + ", where it was")
		cordon(ctx, old.Spec.NodeName, true)
		DeferCleanup(func(ctx context.Context) { cordon(ctx, old.Spec.NodeName, false) })
		remove(ctx, podObject(first))
		second := ns.podBy(ctx, pluginScheduler, "second", "", data)
		Expect(runs(ctx, second).Spec.NodeName).To(Equal(warm), "where the replica was")
		Expect(sh(ctx, second, "cat /data-data/journal")).To(Equal("before\n"))

		By("closing " + warm + " too")
		cordon(ctx, warm, true)
		DeferCleanup(func(ctx context.Context) { cordon(ctx, warm, false) })
		remove(ctx, podObject(second))
		third := ns.podBy(ctx, pluginScheduler, "third", "", data)
		Expect(runs(ctx, third).Spec.NodeName).NotTo(BeElementOf(old.Spec.NodeName, warm))
		Expect(sh(ctx, third, "cat /data-data/journal")).To(Equal("before\n"))
	})
})

//go:build e2e

package install

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// anyWhere makes the class whose volumes are made before it is known where their pods go.
const anyWhere = "kubectl apply --server-side -f deploy/examples/storage-failover.yaml\n"

var _ = Describe("the chart with two DPU clusters", Label("two-dpu-clusters"), func() {
	It("is installed by the page, with hosts that ask for volumes by themselves, and pods fail over in each", func(ctx context.Context) {
		byNode := strings.NewReplacer("--set cluster=host", "--set cluster=host --set attachMode=Node",
			"--set host.snapHostController.enabled=true", "--set host.snapHostController.enabled=true --set attachMode=Node")
		follow(ctx, "## Several DPU clusters", func(s Step) string {
			s.Script = byNode.Replace(s.Script)
			return withEmulation(s)
		})
		vendor(ctx)
		follow(ctx, failover, func(s Step) string {
			return strings.ReplaceAll(s.Script, anyWhere, "") // another of that name is there
		})
		settled(ctx)
		hosts := bed.Nodes()
		probed(ctx, hosts[:4]...)
		for i, cluster := range []string{"east", "west"} {
			lives := moved(ctx, "writer-"+cluster, "snap-failover", hosts[2*i])
			Expect(in(ctx, volume+"-"+lives.Name)).To(Equal(cluster))
			failsOver(ctx, hosts[2*i+1], hosts[2*i])
			writes(ctx, lives.Name)
			undisturbed(ctx, lives.Name, lives.UID)
		}
	}, NodeTimeout(4*patience))
})

// in is the name of the DPU cluster in which the volume of a claim is.
func in(ctx context.Context, claim string) string {
	GinkgoHelper()
	c, v := &corev1.PersistentVolumeClaim{}, &storagev1alpha1.DPUVolume{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim}, c)).To(Succeed())
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: c.Spec.VolumeName}, v)).To(Succeed())
	Expect(v.Status.State).NotTo(BeNil())
	return v.Status.State.DPUCluster.Name
}

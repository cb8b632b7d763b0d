//go:build e2e

package install

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
)

// schedulers are the manifests of both second schedulers, and of the extender of the first one.
const schedulers = " -f deploy/scheduler/rbac.yaml -f deploy/scheduler/extender.yaml -f deploy/scheduler/second-scheduler.yaml" +
	" -f deploy/scheduler/plugin-scheduler.yaml -f deploy/scheduler/plugin-scheduler-deployment.yaml\n"

// secondSchedulers has pods with volumes placed by schedulers that are installed by their manifests: off the host
// of the control plane, which has no DPU, though that is where they would rather be.
func secondSchedulers(ctx context.Context) {
	GinkgoHelper()
	run(ctx, "host", "kubectl apply --server-side"+schedulers)
	settled(ctx)
	control := bed.Nodes()[len(bed.Nodes())-1]
	for _, name := range []string{"moor-scheduler", "moor-plugin-scheduler"} {
		claim(ctx, name)
		bound(ctx, name)
		p := &corev1.Pod{ObjectMeta: objectMeta(name), Spec: podSpec("sleep 1000000")}
		p.Spec.SchedulerName, p.Spec.Affinity = name, kit.Preferring(control)
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		p.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		Expect(clients.Host.Create(ctx, p)).To(Succeed())
		p, err := kit.AwaitRunning(ctx, clients.Host, client.ObjectKeyFromObject(p), "", patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Spec.NodeName).NotTo(Equal(control), "placed by %s", name)
		Expect(clients.Host.Delete(ctx, p, &client.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})).To(Succeed())
		Expect(clients.Host.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(name)})).To(Succeed())
	}
	run(ctx, "host", "kubectl delete"+schedulers)
}

//go:build e2e

package install

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// probed waits until the DPU of each of these hosts sees it alive, by the link between the two.
func probed(ctx context.Context, hosts ...string) {
	GinkgoHelper()
	for _, host := range hosts {
		Eventually(func(ctx context.Context) (*moorv1alpha1.HostObservation, error) {
			node := &moorv1alpha1.DPUStorageNode{}
			if err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node); err != nil || node.Status.DPU == nil {
				return nil, err
			}
			return node.Status.DPU.Host, nil
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveField("Alive", BeTrue()), "its DPU hears host %s", host)
	}
}

// moved makes a pod that writes to a volume of a class, with a controller, on a host if that can be.
func moved(ctx context.Context, name, class, host string) *corev1.Pod {
	GinkgoHelper()
	labels := map[string]string{"app": name}
	pod := podSpec(appendLines)
	pod.Affinity = kit.Preferring(host)
	Expect(clients.Host.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: objectMeta(name),
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claimWith(volume, class)},
		},
	})).To(Succeed())
	p, err := kit.AwaitRunning(ctx, clients.Host, client.ObjectKey{Namespace: namespace, Name: name + "-0"}, "", patience)
	Expect(err).NotTo(HaveOccurred())
	Expect(p.Spec.NodeName).To(Equal(host))
	return p
}

// replicated waits until the volume of a claim is ready on a host as a replica.
func replicated(ctx context.Context, claim, host string) {
	GinkgoHelper()
	c := &corev1.PersistentVolumeClaim{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim}, c)).To(Succeed())
	Eventually(kit.ReadyReplica).WithContext(ctx).WithArguments(clients.Host, c.Spec.VolumeName).WithTimeout(patience).WithPolling(tick).Should(Equal(host))
}

// failsOver has the host of a pod with a volume lose its power, and the pod write on where the
// replica is, after all that it had written. When it returns the host is back.
func failsOver(ctx context.Context, host, other string) {
	GinkgoHelper()
	name := "moved-off-" + host
	before := moved(ctx, name, "snap-failover", host)
	claim := volume + "-" + before.Name
	replicated(ctx, claim, other)
	lines := writes(ctx, before.Name)
	begin := time.Now()
	Expect(bed.PowerOff(ctx, host)).To(Succeed())
	DeferCleanup(powerOn, host)
	now, err := kit.AwaitRunning(ctx, clients.Host, client.ObjectKeyFromObject(before), string(before.UID), patience)
	Expect(err).NotTo(HaveOccurred())
	report("from the power-off of %s to the pod that runs on %s: %.1f s", host, other, time.Since(begin).Seconds())
	Expect(now.Spec.NodeName).To(Equal(other), "where the replica is")
	writes(ctx, now.Name)
	Expect(Complete(said(ctx, now.Name, "cat "+journal), lines)).To(Succeed(), "after the last line that was seen")
	powerOn(ctx, host)
	settled(ctx)
	probed(ctx, host)
	Expect(clients.Host.Delete(ctx, &appsv1.StatefulSet{ObjectMeta: objectMeta(name)})).To(Succeed())
	Expect(clients.Host.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(claim)})).To(Succeed())
}

// powerOn has a host back that has lost its power, with what it shows of its DPU.
func powerOn(ctx context.Context, host string) {
	GinkgoHelper()
	Expect(bed.PowerOn(ctx, host)).To(Succeed())
	showFunctions(ctx, host)
}

//go:build e2e

package e2e

import (
	"context"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/kit"
)

// ofDPF has what was made in the DPU cluster for a volume look as DPF's releases of 2026 make it,
// while no controller looks: its annotation on Volume and claim, its ID, and nothing else.
func ofDPF(ctx context.Context, volume string) {
	GinkgoHelper()
	v := &storagev1alpha1.Volume{ObjectMeta: metav1.ObjectMeta{Name: volume, Namespace: kit.Namespace}}
	Expect(clients.DPU.Get(ctx, client.ObjectKeyFromObject(v), v)).To(Succeed())
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: v.Spec.Volume.CSIReference.PVCRef.Name, Namespace: kit.Namespace}}
	Expect(clients.DPU.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	owner := map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolume: kit.Namespace + "/" + volume}
	_, err := kube.Patch(ctx, clients.DPU, claim, func(c *corev1.PersistentVolumeClaim) { c.Annotations, c.OwnerReferences = owner, nil })
	Expect(err).NotTo(HaveOccurred())
	_, err = kube.Patch(ctx, clients.DPU, v, func(v *storagev1alpha1.Volume) {
		v.Labels, v.Finalizers, v.Annotations = nil, nil, owner
		v.Spec.Volume.ID = volume
		delete(v.Spec.StorageParameters, storagev1alpha1.ParameterPolicy)
	})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("a volume that DPF made", func() {
	It("is taken over once what DPF attached is gone, with the vendor's volume", func(ctx context.Context) {
		ns := newNamespace(ctx)
		c := ns.claim(ctx, claim{name: "of-dpf"})
		volume := volumeOf(ctx, c)
		vendor := vendorVolume(ctx, volume)

		By("having DPF in the place of Moor")
		for _, process := range []string{"snap-host-controller", "snap-controller"} {
			Expect(bed.Kill(process, syscall.SIGKILL)).To(Succeed())
			DeferCleanup(bed.Restart, process)
		}
		ofDPF(ctx, volume)
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "by-dpf-" + volume, Namespace: kit.Namespace}}
		a.Spec.NodeName, a.Spec.Source.VolumeRef = dpuIn("host-2"), &storagev1alpha1.ObjectRef{Kind: "Volume", APIVersion: storagev1alpha1.GroupVersion.String(), Name: volume, Namespace: kit.Namespace}
		a.Spec.FunctionType = storagev1alpha1.FunctionTypeVF
		Expect(clients.DPU.Create(ctx, a)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(clients.DPU.Delete(ctx, a))).To(Succeed()) })
		for _, process := range []string{"snap-controller", "snap-host-controller"} {
			Expect(bed.Restart(ctx, process)).To(Succeed())
		}

		By("granting nothing beside what DPF attached")
		pod := ns.pod(ctx, "writer", "host-1", c)
		o := &storagev1alpha1.DPUVolume{}
		Eventually(func(ctx context.Context) (string, error) {
			err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, o)
			return conditionWords(o.Status.Conditions), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("have DPF remove VolumeAttachment " + a.Name))
		Eventually(messageOf(byHand("host-1-"+volume, "host-1", volume))).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(ContainSubstring("it is not taken over yet"))

		By("having DPF detach")
		Expect(clients.DPU.Delete(ctx, a)).To(Succeed())
		runs(ctx, pod)
		Expect(sh(ctx, pod, "echo here > /data-of-dpf/x && sync && cat /data-of-dpf/x")).To(Equal("here\n"))
		Expect(vendorVolume(ctx, volume)).To(Equal(vendor))
	})
})

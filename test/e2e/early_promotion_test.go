//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/kit"
)

// asker is the process of Moor that asks for the volumes of a host.
func asker(host string) string {
	if bed.Options().AttachMode == dpf.AttachNode {
		return "snap-csi-plugin-" + host
	}
	return "snap-csi-plugin"
}

func attachmentObject(node, volume string) *storagev1alpha1.DPUVolumeAttachment {
	key := attachmentKey(node, volume)
	return &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}}
}

// writerOf is the right to write a volume.
func writerOf(volume string) func(context.Context) (moorv1alpha1.WriterClaimStatus, error) {
	return func(ctx context.Context) (moorv1alpha1.WriterClaimStatus, error) {
		c := &moorv1alpha1.WriterClaim{}
		err := clients.DPU.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, c)
		if err != nil || c.Status == nil {
			return moorv1alpha1.WriterClaimStatus{}, err
		}
		return *c.Status, nil
	}
}

var _ = Describe("a replica whose pod is bound", bothModes, func() {
	It("is shown before its host asks, and taken back if it never does", func(ctx context.Context) {
		ns := newNamespace(ctx)
		ns.moored(ctx, ns.class(ctx, map[string]string{"policy": "local", "maxShares": "2"}))
		data := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-moored-0", Namespace: ns.name}}
		old := runs(ctx, client.ObjectKey{Namespace: ns.name, Name: "moored-0"})
		volume := volumeOf(ctx, data)
		record := recorded(ctx, volume)
		sh(ctx, client.ObjectKeyFromObject(old), "echo before | dd of=/data/journal conv=fsync 2>/dev/null")
		Eventually(replicaOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		warm, err := replicaOf(volume)(ctx)
		Expect(err).NotTo(HaveOccurred())
		ns.scale(ctx, "moored", 0)
		Eventually(writerOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveField("Phase", moorv1alpha1.ClaimFree))
		gone(ctx, attachmentObject(old.Spec.NodeName, volume))

		By("binding a pod to " + warm + ", where nothing asks for its volume")
		kill(asker(warm))
		waits := ns.pod(ctx, "waits", warm, data)
		Eventually(func(ctx context.Context) (*bool, error) {
			a := attachmentObject(warm, volume)
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(a), a)
			return a.Status.DPUAttached, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveValue(BeTrue()))
		Expect(writerOf(volume)(ctx)).To(And(HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Holder", dpuIn(warm)), HaveField("Epoch", BeEquivalentTo(2))))
		Expect(attachment(ctx, warm, volume).Spec.Role).To(Equal(storagev1alpha1.RoleReplica), "its host has not asked for it")

		By("deleting that pod")
		Expect(clients.Host.Delete(ctx, podObject(waits))).To(Succeed())
		Eventually(writerOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(And(HaveField("Phase", moorv1alpha1.ClaimFree), HaveField("Epoch", BeEquivalentTo(2))))
		gone(ctx, attachmentObject(warm, volume))
		gone(ctx, podObject(waits))

		By("running one elsewhere")
		start(ctx, asker(warm))
		next := ns.pod(ctx, "next", old.Spec.NodeName, data)
		runs(ctx, next)
		Expect(sh(ctx, next, "cat /data-data-moored-0/journal")).To(Equal("before\n"))
		proven(ctx, record, volume)
	})
})

//go:build e2e

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// byHand is an attachment as an operator makes it in zero-trust mode.
func byHand(name, node, volume string) *storagev1alpha1.DPUVolumeAttachment {
	return &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kit.Namespace},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: node, DPUVolumeName: volume,
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}
}

func messageOf(o *storagev1alpha1.DPUVolumeAttachment) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.Status.Message, err
	}
}

func shown(o *storagev1alpha1.DPUVolumeAttachment) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.Status.DPUAttached != nil && *o.Status.DPUAttached, err
	}
}

// heldClaim reports what keeps a claim from being there, granted, and to stay.
func heldClaim(key client.ObjectKey) func(context.Context) error {
	return func(ctx context.Context) error {
		claim := &moorv1alpha1.WriterClaim{}
		if err := clients.DPU.Get(ctx, key, claim); err != nil {
			return err
		}
		if !claim.DeletionTimestamp.IsZero() || claim.Status == nil || claim.Status.Phase != moorv1alpha1.ClaimGranted {
			return fmt.Errorf("WriterClaim %s goes since %v, and is %+v", key, claim.DeletionTimestamp, claim.Status)
		}
		return nil
	}
}

var _ = Describe("one writer", bothModes, func() {
	It("makes a second primary wait, in words, until the first has gone", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		second := byHand(ns.name+"-second", "host-2", volumeOf(ctx, files))
		Expect(clients.Host.Create(ctx, second)).To(Succeed())
		Eventually(messageOf(second)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(And(ContainSubstring("single writer"), ContainSubstring("dpu-1")), "one writer: the second primary waits")
		Consistently(shown(second)).WithContext(ctx).WithTimeout(calm).WithPolling(tick).Should(BeFalse(), "one writer: the second primary waits")

		remove(ctx, podObject(pod))
		Eventually(shown(second)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
		Expect(second.Status.Epoch).To(BeNumerically("==", 2))
		claim := &moorv1alpha1.WriterClaim{}
		Expect(clients.DPU.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: second.Spec.DPUVolumeName}, claim)).To(Succeed())
		Expect(claim.Status.Receipts).NotTo(BeEmpty())
		Expect(claim.Status.Receipts[0].Kind).To(Equal(moorv1alpha1.ReceiptDPU))
		remove(ctx, second)
	})

	It("keeps the right to write when the Volume is deleted with all that it owns", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		key := client.ObjectKey{Namespace: kit.Namespace, Name: volumeOf(ctx, files)}
		volume := &storagev1alpha1.Volume{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}}
		Expect(clients.DPU.Delete(ctx, volume, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Consistently(heldClaim(key)).WithContext(ctx).WithTimeout(calm).WithPolling(tick).Should(Succeed())
		sh(ctx, pod, "echo still | dd of=/data-files/x conv=fsync")
	})

	It("keeps the right to write when its namespace is deleted, and says why", func(ctx context.Context) {
		key := client.ObjectKey{Namespace: "held-" + newNamespace(ctx).name, Name: "volume"}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}
		Expect(clients.DPU.Create(ctx, namespace)).To(Succeed())
		held := &moorv1alpha1.WriterClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: moorv1alpha1.WriterClaimSpec{VolumeName: key.Name},
		}
		Expect(clients.DPU.Create(ctx, held)).To(Succeed())
		held.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Epoch: 1}
		Expect(clients.DPU.Status().Update(ctx, held)).To(Succeed())

		Expect(clients.DPU.Delete(ctx, namespace)).To(Succeed())
		Eventually(func(ctx context.Context) ([]corev1.NamespaceCondition, error) {
			err := clients.DPU.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
			return namespace.Status.Conditions, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainElement(HaveField("Message", ContainSubstring("the right to write volume volume is Granted (DPU dpu-1)"))))
		Expect(heldClaim(key)(ctx)).To(Succeed())

		Expect(clients.DPU.Get(ctx, key, held)).To(Succeed())
		held.Status.Phase, held.Status.Holder = moorv1alpha1.ClaimFree, ""
		Expect(clients.DPU.Status().Update(ctx, held)).To(Succeed())
		Eventually(func(ctx context.Context) error {
			return clients.DPU.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		}).
			WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(MatchError(apierrors.IsNotFound, "not found"))
	})

	It("does not delete a volume under a pod, in whatever order things are deleted", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		volume := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Name: volumeOf(ctx, files), Namespace: kit.Namespace}}
		Expect(clients.Host.Delete(ctx, volume)).To(Succeed())
		Expect(clients.Host.Delete(ctx, files)).To(Succeed())
		Consistently(func(ctx context.Context) error {
			return clients.Host.Get(ctx, client.ObjectKeyFromObject(volume), volume)
		}).WithContext(ctx).WithTimeout(calm).WithPolling(tick).Should(Succeed())
		sh(ctx, pod, "echo still | dd of=/data-files/x conv=fsync")
		Eventually(func(ctx context.Context) (string, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(volume), volume)
			return conditionWords(volume.Status.Conditions), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("volume is attached"))
		remove(ctx, podObject(pod))
		gone(ctx, files)
		gone(ctx, volume)
	})

	It("keeps a vendor that a policy names", func(ctx context.Context) {
		vendor := &storagev1alpha1.DPUStorageVendor{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-vendor", Namespace: kit.Namespace},
			Spec:       storagev1alpha1.DPUStorageVendorSpec{StorageClassName: "local", PluginName: "local"},
		}
		policy := &storagev1alpha1.DPUStoragePolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-policy", Namespace: kit.Namespace},
			Spec:       storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: []string{"e2e-vendor"}},
		}
		Expect(clients.Host.Create(ctx, vendor)).To(Succeed())
		Expect(clients.Host.Create(ctx, policy)).To(Succeed())
		Eventually(func(ctx context.Context) ([]string, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(vendor), vendor)
			return vendor.Finalizers, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		Expect(clients.Host.Delete(ctx, vendor)).To(Succeed())
		Eventually(func(ctx context.Context) (string, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(vendor), vendor)
			return conditionWords(vendor.Status.Conditions), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("still named by DPUStoragePolicy e2e-policy"))
		remove(ctx, policy)
		gone(ctx, vendor)
	})
})

func conditionWords(conditions []metav1.Condition) string {
	out := ""
	for _, c := range conditions {
		out += c.Message + "\n"
	}
	return out
}

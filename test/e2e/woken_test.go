//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

var _ = Describe("a kubelet that has put a pod off", bothModes, func() {
	// The claim comes to its pod late, which puts the kubelet off as surely as
	// the node authorizer does by chance.
	It("is woken", func(ctx context.Context) {
		ns := newNamespace(ctx)
		late := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
		late.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
		pod := ns.pod(ctx, "pod", "host-1", late)
		to := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "host-1"}}
		Expect(clients.Host.SubResource("binding").Create(ctx, podObject(pod), to)).To(Succeed(), "no scheduler takes a pod without its claim")
		Eventually(eventsOf(pod.Namespace, pod.Name)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("failed to process volumes"))
		ns.claim(ctx, claim{name: "late"})
		Expect(runs(ctx, pod).Annotations).To(HaveKey(storagev1alpha1.AnnotationKubeletWoken), "the kubelet itself would look again after ten seconds and more")
	})
})

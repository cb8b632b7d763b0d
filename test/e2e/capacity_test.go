//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// available is the room of the policy's vendors in bytes; -1 if none tells.
func available(ctx context.Context) (int64, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: "local"}, policy)
	if err != nil || policy.Status.Capacity == nil {
		return -1, err
	}
	return policy.Status.Capacity.Available.Value(), nil
}

var _ = Describe("the room of a policy", func() {
	It("is told through both clusters, and shrinks by a volume that takes its room at once", func(ctx context.Context) {
		r := newRoom(ctx)
		Eventually(available).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", 0))
		before, err := available(ctx)
		Expect(err).NotTo(HaveOccurred())
		const size = 512 << 20
		class := r.class(ctx, map[string]string{"policy": "local", "provisioning": "thick"})
		c := r.claim(ctx, claim{name: "thick", class: class, size: "512Mi", mode: corev1.PersistentVolumeBlock})
		volumeOf(ctx, c)
		Eventually(available).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically("<=", before-size/2))
	})
})

//go:build e2e

package e2e

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// available is the capacity of the policy's vendors in bytes; -1 if none tells.
func available(ctx context.Context) (int64, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: "local"}, policy)
	if err != nil || policy.Status.Capacity == nil {
		return -1, err
	}
	return policy.Status.Capacity.Available.Value(), nil
}

// left is what the file system behind the reference vendor's volumes has left.
func left() (int64, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(layout.TargetSource(), &fs)
	return int64(fs.Bavail) * fs.Bsize, err
}

// agrees waits until what is told is near to what is left.
func agrees(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (int64, error) {
		told, err := available(ctx)
		there, statErr := left()
		return told - there, errors.Join(err, statErr)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically("~", 0, 128<<20))
}

var _ = Describe("the capacity of a policy", func() {
	It("is told through both clusters, and shrinks by what is written", func(ctx context.Context) {
		ns := newNamespace(ctx)
		agrees(ctx)
		before, err := left()
		Expect(err).NotTo(HaveOccurred())
		c := ns.claim(ctx, claim{name: "full", size: "512Mi", mode: corev1.PersistentVolumeBlock})
		pod := ns.pod(ctx, "pod", "", c)
		runs(ctx, pod)
		sh(ctx, pod, "dd if=/dev/urandom of=/dev/full bs=1M count=384 conv=fsync 2>/dev/null")
		after, err := left()
		Expect(err).NotTo(HaveOccurred())
		Expect(before-after).To(BeNumerically(">", 256<<20), "more is written than what may be told too late")
		agrees(ctx)
	})
})

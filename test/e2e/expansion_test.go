//go:build e2e

package e2e

import (
	"context"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// seenIn is how soon a pod sees that its volume grew.
const seenIn = 10 * time.Second

// grow asks for more of a claim, as kubectl patch does.
func grow(ctx context.Context, c *corev1.PersistentVolumeClaim, size string) {
	GinkgoHelper()
	before := c.DeepCopy()
	c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	Expect(clients.Host.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
}

// filesystemBytes is how large the file system is that a pod has of a claim, in bytes.
func filesystemBytes(ctx context.Context, key client.ObjectKey, claim string) int64 {
	GinkgoHelper()
	fields := strings.Fields(sh(ctx, key, "stat -f -c '%%b %%S' /data-%s", claim))
	Expect(fields).To(HaveLen(2))
	blocks, err := strconv.ParseInt(fields[0], 10, 64)
	Expect(err).NotTo(HaveOccurred())
	size, err := strconv.ParseInt(fields[1], 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return blocks * size
}

var _ = Describe("a volume that grows", func() {
	It("is larger for the pod that uses it, at once (xfs)", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "functionType": "vf", "csi.storage.k8s.io/fstype": "xfs"})
		c := ns.claim(ctx, claim{name: "files", class: class, size: "320Mi"})
		block := ns.claim(ctx, claim{name: "block", class: class, size: "32Mi", mode: corev1.PersistentVolumeBlock})
		key := ns.pod(ctx, "user", "host-1", c, block)
		runs(ctx, key)
		sh(ctx, key, "echo before > /data-files/x && sync /data-files/x")
		was := filesystemBytes(ctx, key, "files")
		begin := time.Now()
		volumeOf(ctx, c)
		volumeOf(ctx, block)
		grow(ctx, c, "512Mi")
		grow(ctx, block, "48Mi")
		Eventually(func() int64 { return filesystemBytes(ctx, key, "files") }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">=", was+180<<20))
		took := time.Since(begin)
		GinkgoWriter.Printf("the pod saw it %.1f s after it was asked for\n", took.Seconds())
		Eventually(func() string { return strings.TrimSpace(sh(ctx, key, "blockdev --getsize64 /dev/block")) }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick).Should(Equal(strconv.Itoa(48 << 20)))
		Expect(sh(ctx, key, "cat /data-files/x")).To(Equal("before\n"))
		Expect(runs(ctx, key).Annotations).To(HaveKey(storagev1alpha1.AnnotationKubeletWoken), "its kubelet did not look by chance")
		Expect(took).To(BeNumerically("<", 3*seenIn), "three times what a machine takes that does nothing else")
	})

	// In use, ext4 grows only for those who have CAP_SYS_RESOURCE, which machines
	// of tests may lack; not in use, it grows without that.
	It("is larger for the next pod, with what the first one wrote (ext4)", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "functionType": "vf"})
		c := ns.claim(ctx, claim{name: "files", class: class, size: "64Mi"})
		first := ns.pod(ctx, "first", "host-1", c)
		runs(ctx, first)
		sh(ctx, first, "echo before > /data-files/x && sync /data-files/x")
		was := filesystemBytes(ctx, first, "files")
		remove(ctx, podObject(first))
		volume := volumeOf(ctx, c)
		grow(ctx, c, "128Mi")
		Eventually(func(ctx context.Context) (int64, error) {
			pv := &corev1.PersistentVolume{}
			err := clients.Host.Get(ctx, client.ObjectKey{Name: volume}, pv)
			have := pv.Spec.Capacity[corev1.ResourceStorage]
			return have.Value(), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEquivalentTo(128 << 20))
		second := ns.pod(ctx, "second", "host-2", c)
		runs(ctx, second)
		Expect(filesystemBytes(ctx, second, "files")).To(BeNumerically(">", was+48<<20))
		Expect(sh(ctx, second, "cat /data-files/x")).To(Equal("before\n"))
	})
})

//go:build e2e

package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// syncedWrites writes 64 blocks, one after the other, each to the medium.
const syncedWrites = `i=0; while [ $i -lt 64 ]; do dd if=/dev/zero of=/dev/block bs=4k count=1 seek=$i conv=notrunc,fsync 2>/dev/null || exit 1; i=$((i+1)); done`

// writing is how long syncedWrites take in a pod.
func writing(ctx context.Context, key client.ObjectKey) time.Duration {
	GinkgoHelper()
	began := time.Now()
	sh(ctx, key, syncedWrites)
	return time.Since(began)
}

var _ = Describe("a volume with a VolumeAttributesClass", func() {
	It("keeps to its limits from the moment when the class is in effect, without a restart of the pod", func(ctx context.Context) {
		ns := newNamespace(ctx)
		slow := &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: ns.name + "-slow"}, DriverName: "csi.snap.nvidia.com",
			Parameters: map[string]string{"iops": "16"},
		}
		Expect(clients.Host.Create(ctx, slow)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = clients.Host.Delete(ctx, slow) })
		class := ns.class(ctx, map[string]string{"policy": "local", "functionType": "vf"})
		c := ns.claim(ctx, claim{name: "block", class: class, size: "32Mi", mode: corev1.PersistentVolumeBlock})
		key := ns.pod(ctx, "user", "host-1", c)
		runs(ctx, key)
		free := writing(ctx, key)
		volumeOf(ctx, c)
		before := c.DeepCopy()
		c.Spec.VolumeAttributesClassName = &slow.Name
		Expect(clients.Host.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		Eventually(func(ctx context.Context) (string, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(c), c)
			return ptr.Deref(c.Status.CurrentVolumeAttributesClassName, ""), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(slow.Name))
		limited := writing(ctx, key)
		Expect(limited).To(BeNumerically(">", 3*time.Second), "64 writes at 16 a second")
		Expect(limited).To(BeNumerically(">", free), "without the class it took %s", free)

		By("leaving no unused class behind in the DPU cluster")
		remove(ctx, podObject(key))
		remove(ctx, c)
		Eventually(func(ctx context.Context) ([]string, error) {
			var made storagev1.VolumeAttributesClassList
			err := clients.DPU.List(ctx, &made)
			var names []string
			for _, o := range made.Items {
				if strings.HasPrefix(o.Name, "moor-") && o.Parameters["iops"] == "16" {
					names = append(names, o.Name)
				}
			}
			return names, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})
})

//go:build e2e

package e2e

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// remaining are the VolumeAttachments of a volume in the DPU cluster, and its Volume.
func remaining(volume string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var list storagev1alpha1.VolumeAttachmentList
		if err := clients.DPU.List(ctx, &list, client.InNamespace(kit.Namespace)); err != nil {
			return nil, err
		}
		var out []string
		for i := range list.Items {
			if a := &list.Items[i]; a.VolumeName() == volume {
				out = append(out, "VolumeAttachment "+a.Name)
			}
		}
		err := clients.DPU.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, &storagev1alpha1.Volume{})
		if err == nil {
			out = append(out, "Volume "+volume)
		}
		return out, client.IgnoreNotFound(err)
	}
}

var _ = Describe("a DPU that was taken out", slow, bothModes, func() {
	It("keeps neither its replica nor the volume", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.newSubject(ctx, "snap-failover", "host-1")
		s.idles(ctx)
		powerOff(ctx, s.replica, dpuIn(s.replica))
		d := within(silentLetsGo)
		By("deleting the volume with its pod, while its replica is on a DPU that is off")
		ns.scale(ctx, strings.TrimSuffix(s.key.Name, "-0"), 0)
		Expect(clients.Host.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + s.pod.Name, Namespace: ns.name}})).To(Succeed())
		Eventually(remaining(s.volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		d.met("nothing of the volume is left")
	})
})

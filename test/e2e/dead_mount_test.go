//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// deadMountActed is longer than it takes from the word of a host to the deletion of the pods, the first time.
const deadMountActed = 8 * time.Second

// deadMounts are those that a host tells of, by volume.
func deadMounts(host string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (out []string, err error) {
		node := &moorv1alpha1.DPUStorageNode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node); err != nil || node.Status.Host == nil {
			return nil, err
		}
		for _, d := range node.Status.Host.DeadMounts {
			out = append(out, d.Volume)
		}
		return out, nil
	}
}

// dpuVolume reads a volume.
func dpuVolume(ctx context.Context, name string) *storagev1alpha1.DPUVolume {
	GinkgoHelper()
	v := &storagev1alpha1.DPUVolume{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: name}, v)).To(Succeed())
	return v
}

var _ = Describe("a pod whose mount died with SNAP", bothModes, func() {
	It("is made anew without a human, and loses nothing", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		for n := range 2 {
			if n == 1 {
				By("killing the host's plugin first, which has staged it")
				restart(ctx, "snap-csi-plugin-"+s.pod.Spec.NodeName)
			}
			restart(ctx, "snap-emulator-"+dpuIn(s.pod.Spec.NodeName))
			s.writer().ends(ctx)
			s.again(ctx, within(hostDead+drained))
			Expect(dpuVolume(ctx, s.volume).Status.Restarts).To(HaveValue(HaveField("Count", int32(n+1))))
		}
		Eventually(deadMounts("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		s.judge(ctx)
	})

	It("is not deleted before its device is back, also by a plugin that was started meanwhile", func(ctx context.Context) {
		ns := newNamespace(ctx)
		pod := ns.mooredAt(ctx, "waits", ns.class(ctx, map[string]string{"policy": "local", "deadMount": "Restart"}), "host-1")
		before := runs(ctx, pod)
		volume := volumeOf(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-waits-0", Namespace: ns.name}})
		sh(ctx, pod, "echo kept | dd of=/data/x conv=fsync")
		kill("snap-emulator-dpu-1")
		restart(ctx, "snap-csi-plugin-host-1")
		Eventually(deadMounts("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ConsistOf(volume))
		Consistently(func(ctx context.Context) (corev1.Pod, error) {
			now := corev1.Pod{}
			err := clients.Host.Get(ctx, pod, &now)
			return now, err
		}).WithContext(ctx).WithTimeout(deadMountActed).WithPolling(tick).Should(And(HaveField("UID", before.UID), HaveField("DeletionTimestamp", BeNil())),
			"a pod that is made anew could not start")
		start(ctx, "snap-emulator-dpu-1")
		_, err := kit.AwaitRunning(ctx, clients.Host, pod, string(before.UID), patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(sh(ctx, pod, "cat /data/x")).To(Equal("kept\n"))
		Eventually(deadMounts("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})

	It("is made anew by virtio-fs too, with what it had synced", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "emulation": "virtiofs", "deadMount": "Restart"})
		pod := ns.mooredAt(ctx, "shares", class, "host-1")
		before := runs(ctx, pod)
		Expect(sh(ctx, pod, "echo kept > /data/x && sync && grep ' /data ' /proc/mounts")).To(ContainSubstring("virtiofs"))
		volume := volumeOf(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-shares-0", Namespace: ns.name}})
		restart(ctx, "snap-emulator-dpu-1")
		_, err := kit.AwaitRunning(ctx, clients.Host, pod, string(before.UID), patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(sh(ctx, pod, "cat /data/x")).To(Equal("kept\n"))
		Expect(dpuVolume(ctx, volume).Status.Restarts).To(HaveValue(HaveField("Count", int32(1))))
		Eventually(deadMounts("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})

	It("is told of, on attachment and pod, where it is to be told alone, and runs once it was deleted", func(ctx context.Context) {
		ns := newNamespace(ctx)
		pod := ns.mooredAt(ctx, "told", ns.class(ctx, map[string]string{"policy": "local", "deadMount": "Tell"}), "host-1")
		before := runs(ctx, pod)
		volume := volumeOf(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-told-0", Namespace: ns.name}})
		sh(ctx, pod, "echo kept | dd of=/data/x conv=fsync")
		restart(ctx, "snap-emulator-dpu-1")
		Eventually(deadMounts("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ConsistOf(volume))
		Eventually(func(ctx context.Context) bool {
			return meta.IsStatusConditionFalse(attachment(ctx, "host-1", volume).Status.Conditions, storagev1alpha1.ConditionMountHealthy)
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
		Eventually(func(ctx context.Context) (string, error) {
			var events corev1.EventList
			err := clients.Host.List(ctx, &events, client.InNamespace(ns.name))
			for _, e := range events.Items {
				if e.Reason == storagev1alpha1.EventMountDead && e.InvolvedObject.UID == before.UID {
					return e.Message, err
				}
			}
			return "", err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(And(ContainSubstring("delete the pod"), ContainSubstring("deadMount is Tell")))
		Expect(runs(ctx, pod).UID).To(Equal(before.UID))
		Expect(clients.Host.Delete(ctx, podObject(pod))).To(Succeed())
		_, err := kit.AwaitRunning(ctx, clients.Host, pod, string(before.UID), patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(sh(ctx, pod, "cat /data/x")).To(Equal("kept\n"))
		Eventually(deadMounts("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})
})

//go:build e2e

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// plugged are the StorageClass parameters of a hot-plugged function.
var plugged = map[string]string{"policy": "local", "functionType": "pf", "hotplugFunction": "true"}

// freeFunctions is how many functions of a type host's DPU reports as free.
func freeFunctions(host, kind string) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node); err != nil || node.Status.DPU == nil {
			return -1, err
		}
		for _, f := range node.Status.DPU.Functions {
			if f.Type == kind {
				return f.Free, nil
			}
		}
		return -1, nil
	}
}

var _ = Describe("every emulation method", func() {
	DescribeTable("does the main job", func(ctx context.Context, parameters map[string]string, kind, address string) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, parameters)
		Eventually(freeFunctions("host-1", kind)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", 0))
		free, err := freeFunctions("host-1", kind)(ctx)
		Expect(err).NotTo(HaveOccurred())
		files := ns.claim(ctx, claim{name: "files", class: class})
		first := ns.pod(ctx, "first", "host-1", files)
		runs(ctx, first)
		sh(ctx, first, "echo acknowledged | dd of=/data-files/text conv=fsync")
		volume := volumeOf(ctx, files)
		Expect(attachment(ctx, "host-1", volume).Status.DPU.PCIAddress).To(MatchRegexp(address))
		Eventually(freeFunctions("host-1", kind)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(free - 1))
		vendor := vendorVolume(ctx, volume)
		remove(ctx, podObject(first))

		second := ns.pod(ctx, "second", "host-2", files)
		runs(ctx, second)
		Expect(sh(ctx, second, "cat /data-files/text")).To(Equal("acknowledged\n"))
		sh(ctx, second, "echo more | dd of=/data-files/more conv=fsync")
		Eventually(freeFunctions("host-1", kind)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(free))
		writes, err := kit.TargetLog(vendor)
		Expect(err).NotTo(HaveOccurred())
		Expect(writersInOrder(writes)).To(Equal([]string{"dpu-1", "dpu-2"}))
	},
		Entry("NVMe on a hot-plugged physical function", plugged, "hotplug", `^[34].:00\.0$`),
		Entry("NVMe on the static physical function", map[string]string{"policy": "local", "functionType": "pf"}, "pf", `^26:00\.1$`),
	)

	It("plugs a function in for each of several volumes, and serves them again after a restart of SNAP", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, plugged)
		var claims []*corev1.PersistentVolumeClaim
		for i := range 4 {
			claims = append(claims, ns.claim(ctx, claim{name: fmt.Sprintf("v%d", i), class: class, size: "32Mi", mode: corev1.PersistentVolumeBlock}))
		}
		pod := ns.pod(ctx, "pod", "host-1", claims...)
		runs(ctx, pod)
		for i := range claims {
			sh(ctx, pod, "echo %d | dd of=/dev/v%d bs=4096 conv=sync,fsync", i, i)
		}
		restart(ctx, "snap-emulator-dpu-1")
		remove(ctx, podObject(pod))
		again := ns.pod(ctx, "again", "host-1", claims...)
		runs(ctx, again)
		for i, c := range claims {
			Expect(sh(ctx, again, "head -n 1 /dev/v%d", i)).To(Equal(fmt.Sprintf("%d\n", i)))
			Expect(attachment(ctx, "host-1", volumeOf(ctx, c)).Status.DPU.PCIAddress).To(MatchRegexp(`^[34].:00\.0$`))
		}
	})

	It("brings volumes on hot-plugged functions back after a power cycle of host and DPU, each its own", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, plugged)
		var claims []*corev1.PersistentVolumeClaim
		for i := range 3 {
			claims = append(claims, ns.claim(ctx, claim{name: fmt.Sprintf("v%d", i), class: class, size: "32Mi"}))
		}
		pod := ns.pod(ctx, "pod", "host-3", claims...)
		runs(ctx, pod)
		before := map[string]*storagev1alpha1.AttachedDPU{}
		for i, c := range claims {
			sh(ctx, pod, "echo %d | dd of=/data-v%d/x conv=fsync", i, i)
			before[c.Name] = attachment(ctx, "host-3", volumeOf(ctx, c)).Status.DPU
		}
		By("cutting the power of both")
		Expect(bed.PowerOff(ctx, "host-3")).To(Succeed())
		Expect(bed.PowerOff(ctx, "dpu-3")).To(Succeed())
		Expect(bed.PowerOn(ctx, "dpu-3")).To(Succeed())
		Expect(bed.PowerOn(ctx, "host-3")).To(Succeed())
		By("waiting for the pod to run again by itself")
		for i, c := range claims {
			Eventually(func(ctx context.Context) (string, error) {
				return kit.Exec(ctx, bed, pod, fmt.Sprintf("echo again | dd of=/data-v%d/again conv=fsync 2>/dev/null && cat /data-v%d/x", i, i))
			}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(fmt.Sprintf("%d\n", i)))
			Eventually(attachedDPU("host-3", volumeOf(ctx, c))).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveValue(
				HaveField("NVMeAttrs.NamespaceUUID", before[c.Name].NVMeAttrs.NamespaceUUID)), "each is what it was")
		}
		remove(ctx, podObject(pod))
	})
})

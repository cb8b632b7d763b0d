//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// sharing are the StorageClass parameters of a file system that the DPU shows.
var sharing = map[string]string{"policy": "local", "emulation": "virtiofs"}

var _ = Describe("a file system shown by virtio-fs", bothModes, func() {
	It("keeps a ReadWriteOnce one to one host, and hands it on", func(ctx context.Context) {
		r := newRoom(ctx)
		files := r.claim(ctx, claim{name: "files", class: r.class(ctx, sharing)})
		first := r.pod(ctx, "first", "host-1", files)
		runs(ctx, first)
		sh(ctx, first, "echo acknowledged > /data-files/text")
		volume := volumeOf(ctx, files)
		second := byHand(r.name+"-second", "host-2", volume)
		second.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
		Expect(clients.Host.Create(ctx, second)).To(Succeed())
		Eventually(messageOf(second)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(And(ContainSubstring("single writer"), ContainSubstring("dpu-1")))
		Consistently(shown(second)).WithContext(ctx).WithTimeout(calm).WithPolling(tick).Should(BeFalse())
		remove(ctx, second)
		remove(ctx, podObject(first))

		next := r.pod(ctx, "next", "host-2", files)
		runs(ctx, next)
		Expect(sh(ctx, next, "cat /data-files/text")).To(Equal("acknowledged\n"))
		Expect(attachment(ctx, "host-2", volume).Status.Epoch).To(BeNumerically(">", 1))
	})

	It("comes back after a restart of SNAP for the pod that is made anew", func(ctx context.Context) {
		r := newRoom(ctx)
		files := r.claim(ctx, claim{name: "files", class: r.class(ctx, sharing)})
		pod := r.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		sh(ctx, pod, "echo kept > /data-files/text")
		restart(ctx, "snap-emulator-dpu-1")
		remove(ctx, podObject(pod))
		again := r.pod(ctx, "again", "host-1", files)
		runs(ctx, again)
		Expect(sh(ctx, again, "cat /data-files/text")).To(Equal("kept\n"))
	})
})

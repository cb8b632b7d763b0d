//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// sharing are the StorageClass parameters of a file system that the DPU shows.
var sharing = map[string]string{"policy": "local", "emulation": "virtiofs"}

var _ = Describe("a file system shown by virtio-fs", bothModes, func() {
	It("is one for pods on two hosts, and ends for a host alone from which it is taken", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files", class: ns.class(ctx, sharing), access: corev1.ReadWriteMany})
		a, b, same := ns.pod(ctx, "a", "host-1", files), ns.pod(ctx, "b", "host-2", files), ns.pod(ctx, "same", "host-1", files)
		for _, pod := range []client.ObjectKey{a, b, same} {
			runs(ctx, pod)
		}
		sh(ctx, a, "echo from a > /data-files/a && sync")
		Expect(sh(ctx, b, "cat /data-files/a && mkdir /data-files/d && echo from b > /data-files/d/b")).To(Equal("from a\n"))
		Expect(sh(ctx, a, "cat /data-files/d/b && mv /data-files/d/b /data-files/moved")).To(Equal("from b\n"))
		Expect(sh(ctx, same, "cat /data-files/moved && grep ' /data-files ' /proc/mounts")).To(And(HavePrefix("from b\n"), ContainSubstring("virtiofs")))
		volume := volumeOf(ctx, files)
		dpu := attachment(ctx, "host-1", volume).Status.DPU
		Expect(dpu.VirtioFSAttrs).NotTo(BeNil())
		Expect(dpu.NVMeAttrs).To(BeNil())
		Expect(dpu.FuncVUID).NotTo(BeEmpty())
		directory := filepath.Join(layout.TargetSource(), vendorVolume(ctx, volume)+".dir")

		By("taking it from host-1 under its pods")
		remove(ctx, attachment(ctx, "host-1", volume))
		_, err := kit.Exec(ctx, bed, a, "echo late > /data-files/late")
		Expect(err).To(HaveOccurred())
		_, err = kit.Exec(ctx, bed, a, "cat /data-files/moved")
		Expect(err).To(HaveOccurred())
		Expect(sh(ctx, b, "cat /data-files/moved && echo b goes on > /data-files/b")).To(Equal("from b\n"))
		Expect(filepath.Join(directory, "late")).NotTo(BeAnExistingFile())
		Expect(os.ReadFile(filepath.Join(directory, "b"))).To(BeEquivalentTo("b goes on\n"))
	})

	It("keeps a ReadWriteOnce one to one host, and hands it on", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files", class: ns.class(ctx, sharing)})
		first := ns.pod(ctx, "first", "host-1", files)
		runs(ctx, first)
		sh(ctx, first, "echo acknowledged > /data-files/text")
		volume := volumeOf(ctx, files)
		second := byHand(ns.name+"-second", "host-2", volume)
		second.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
		Expect(clients.Host.Create(ctx, second)).To(Succeed())
		Eventually(messageOf(second)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(And(ContainSubstring("single writer"), ContainSubstring("dpu-1")))
		Consistently(shown(second)).WithContext(ctx).WithTimeout(calm).WithPolling(tick).Should(BeFalse())
		remove(ctx, second)
		remove(ctx, podObject(first))

		next := ns.pod(ctx, "next", "host-2", files)
		runs(ctx, next)
		Expect(sh(ctx, next, "cat /data-files/text")).To(Equal("acknowledged\n"))
		Expect(attachment(ctx, "host-2", volume).Status.Epoch).To(BeNumerically(">", 1))
	})

	It("comes back after a restart of SNAP for the pod that is made anew", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files", class: ns.class(ctx, sharing)})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		sh(ctx, pod, "echo kept > /data-files/text")
		restart(ctx, "snap-emulator-dpu-1")
		remove(ctx, podObject(pod))
		again := ns.pod(ctx, "again", "host-1", files)
		runs(ctx, again)
		Expect(sh(ctx, again, "cat /data-files/text")).To(Equal("kept\n"))
	})
})

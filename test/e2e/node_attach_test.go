//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
)

// bothModes marks what is tested again on a bed whose hosts ask for their
// volumes by themselves.
var bothModes = Label("attach-mode")

var _ = Describe("a host that asks for its volumes by itself", bothModes, func() {
	BeforeEach(func() {
		if bed.Options().AttachMode != dpf.AttachNode {
			Skip("the bed attaches by the controller: bring it up with --attach-mode=node")
		}
	})

	It("needs no VolumeAttachment, and gives back what its pod has used", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		volume := volumeOf(ctx, files)
		Expect(attachment(ctx, "host-1", volume).Spec.Requester).To(Equal(storagev1alpha1.RequesterNode))
		var list storagev1.VolumeAttachmentList
		Expect(clients.Host.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(BeEmpty())
		asked := attachment(ctx, "host-1", volume)
		remove(ctx, podObject(pod))
		gone(ctx, asked)
	})

	It("gets nothing that none of its pods uses", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		volume := volumeOf(ctx, files)
		forged := byHand("host-1-"+volume, "host-1", volume)
		forged.Spec.Requester = storagev1alpha1.RequesterNode
		Expect(clients.Host.Create(ctx, forged)).To(Succeed())
		Eventually(messageOf(forged)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("no pod that is bound to it uses"))
		Consistently(shown(forged)).WithContext(ctx).WithTimeout(calm).WithPolling(tick).Should(BeFalse())
		runs(ctx, ns.pod(ctx, "pod", "host-1", files))
	})

	It("leaves nothing when the pod goes in the middle of the stage", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		first := ns.pod(ctx, "first", "host-1", files)
		runs(ctx, first)
		volume := volumeOf(ctx, files)
		second := ns.pod(ctx, "second", "host-2", files)
		Eventually(messageOf(byHand("host-2-"+volume, "host-2", volume))).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(ContainSubstring("single writer"), "the claim alone keeps the second host off")
		Expect(clients.Host.Delete(ctx, podObject(second))).To(Succeed())
		gone(ctx, podObject(second))
		gone(ctx, byHand("host-2-"+volume, "host-2", volume))
		sh(ctx, first, "echo still | dd of=/data-files/x conv=fsync")
	})

	It("shows a raw device to several hosts at once", func(ctx context.Context) {
		ns := newNamespace(ctx)
		many := ns.claim(ctx, claim{name: "many", mode: corev1.PersistentVolumeBlock, access: corev1.ReadWriteMany})
		a, b := ns.pod(ctx, "a", "host-1", many), ns.pod(ctx, "b", "host-2", many)
		runs(ctx, a)
		runs(ctx, b)
		sh(ctx, a, "echo shared | dd of=/dev/many bs=4096 conv=sync,fsync")
		Expect(sh(ctx, b, "dd if=/dev/many bs=4096 count=1 iflag=direct 2>/dev/null | head -n 1")).To(Equal("shared\n"))
	})
})

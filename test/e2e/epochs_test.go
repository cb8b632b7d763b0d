//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
)

// onEpochs skips a test where the vendor's storage knows no epochs.
func onEpochs() {
	GinkgoHelper()
	if !bed.Options().Epochs {
		Skip("the storage of this bed knows no epochs: bring it up with --epochs")
	}
}

var _ = Describe("storage that knows epochs", Label("epochs"), func() {
	It("serves one DPU after the other, each under its own", func(ctx context.Context) {
		onEpochs()
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		d := within(hostDead)
		drain(ctx, s.host, s.pod)
		s.again(ctx, d)
		a := attachment(ctx, s.pod.Spec.NodeName, s.volume)
		Expect(a.Status.Epoch).To(BeNumerically(">", 1))
		s.judge(ctx)
	})

	It("ends the epoch of a DPU that sees its host dead and whose SNAP hangs", func(ctx context.Context) {
		onEpochs()
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		inject(ctx, s.dpu, fault.Fault{Method: detachNS, Hang: true, Count: -1})
		d := within(bothDead + drained)
		powerOff(ctx, s.host)
		Eventually(func(ctx context.Context) []moorv1alpha1.Receipt { return s.claim(ctx).Status.Receipts }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick / 10).Should(ContainElement(And(HaveField("Kind", moorv1alpha1.ReceiptMedium), HaveField("Epoch", int64(1)))))
		By("killing SNAP of " + s.dpu + ", which shows the volume still")
		restart(ctx, "snap-emulator-"+s.dpu)
		s.again(ctx, d)
		s.judge(ctx)
	})

	It("ends the epoch of a host and a DPU that lose power together", func(ctx context.Context) {
		onEpochs()
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		d := within(bothDead)
		powerOff(ctx, s.host)
		powerOff(ctx, s.dpu)
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptMedium))
		s.judge(ctx)
	})
})

//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

var _ = Describe("replicas of the controllers", slow, bothModes, func() {
	It("fail over the host of the leaders, which dies with the pod", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		undo, err := moor.Elect(ctx, bed, s.host, "host-3")
		DeferCleanup(undo)
		Expect(err).NotTo(HaveOccurred())
		d := within(hostDead + takenOver)
		powerOff(ctx, s.host)
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptDPU))
		s.judge(ctx)
	})

	It("fail it over when one of their hosts has power again, if all of them lost theirs with the pod", func(ctx context.Context) {
		const standby = "host-3"
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		undo, err := moor.Elect(ctx, bed, s.host, standby)
		DeferCleanup(undo)
		Expect(err).NotTo(HaveOccurred())
		powerOff(ctx, s.host)
		powerOn := during(ctx, standby, bed.PowerOff, bed.PowerOn)
		By("waiting for longer than their leases count, without a controller")
		Consistently(func(ctx context.Context) *moorv1alpha1.WriterClaimStatus { return s.claim(ctx).Status }).WithContext(ctx).
			WithTimeout(takenOver + hostDead).WithPolling(tick).
			Should(HaveValue(And(HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Holder", s.dpu), HaveField("Epoch", int64(1)))))
		d := within(hostDead + takenOver)
		powerOn(ctx)
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptDPU))
		s.judge(ctx)
	})
})

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
})

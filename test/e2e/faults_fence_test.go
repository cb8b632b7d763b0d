//go:build e2e

package e2e

import (
	"context"
	"slices"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/test/kit"
)

// inject breaks the SNAP service of a DPU, and mend mends it; the end of the
// test does so too.
func inject(ctx context.Context, dpu string, faults ...fault.Fault) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) { mend(ctx, dpu) })
	for _, f := range faults {
		Expect(kit.SNAP(dpu).Call(ctx, "moor_inject", f, nil)).To(Succeed())
	}
}

func mend(ctx context.Context, dpu string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error { return kit.SNAP(dpu).Call(ctx, "moor_clear", nil, nil) }).
		WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Succeed())
}

// kill kills processes with SIGKILL; the end of the test starts them again.
func kill(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		DeferCleanup(func(ctx context.Context) { start(ctx, name) })
		Expect(bed.Kill(name, syscall.SIGKILL)).To(Succeed())
	}
}

func start(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		if !bed.Running(name) {
			Expect(bed.Restart(ctx, name)).To(Succeed())
		}
	}
}

const (
	detachNS = "nvme_controller_detach_ns"
	attachNS = "nvme_controller_attach_ns"
)

var _ = Describe("a failover goes on", slow, bothModes, func() {
	It("though SNAP hangs, fails, loses an answer and answers twice when it is to fence", func(ctx context.Context) {
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-1", "host-1", "host-1")
		inject(ctx, "dpu-1",
			fault.Fault{Method: detachNS, Hang: true},
			fault.Fault{Method: detachNS, Error: snapError(-5, "Input/output error")},
			fault.Fault{Method: detachNS, When: "after", Drop: true},
			fault.Fault{Method: detachNS, Twice: true})
		d := within(bothDead)
		powerOff(ctx, "host-1")
		for _, s := range all {
			s.again(ctx, d)
		}
		for _, s := range all {
			Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptDPU))
			s.judge(ctx)
		}
	})

	It("though SNAP is killed in the middle, on the old DPU and on the new one", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		next := dpuIn(s.replica)
		inject(ctx, s.dpu, fault.Fault{Method: detachNS, Hang: true, Count: -1})
		inject(ctx, next, fault.Fault{Method: attachNS, Hang: true, Count: -1})
		d := within(bothDead + drained)
		powerOff(ctx, s.host)
		s.reaches(ctx, moorv1alpha1.ClaimFencing, s.dpu)
		By("killing SNAP of " + s.dpu)
		restart(ctx, "snap-emulator-"+s.dpu)
		s.reaches(ctx, moorv1alpha1.ClaimGranted, next)
		By("killing SNAP of " + next)
		restart(ctx, "snap-emulator-"+next)
		s.again(ctx, d)
		s.judge(ctx)
	})

	It("though every controller is killed with the host, and the vendor plugin of the old DPU stays dead", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		d := within(bothDead)
		powerOff(ctx, s.host)
		plugins := []string{"local-vendor-dpu-2", "local-vendor-dpu-3"}
		kill(append(slices.Clone(controllers), plugins...)...)
		kill("local-vendor-" + s.dpu)
		start(ctx, controllers...)
		Eventually(func(ctx context.Context) []moorv1alpha1.Receipt { return s.claim(ctx).Status.Receipts }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		By("starting the vendor plugins of the other DPUs again")
		start(ctx, plugins...)
		s.again(ctx, d)
		Expect(bed.Running("local-vendor-" + s.dpu)).To(BeFalse())
		s.judge(ctx)
	})

	It("and so does a planned move, though the vendor plugin of the old DPU is dead", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		By("killing the vendor plugin of " + s.dpu)
		kill("local-vendor-" + s.dpu)
		d := within(hostDead)
		drain(ctx, s.host, s.pod)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptDPU))
		s.judge(ctx)
	})

	It("at the third host when the replica's dies in the middle of the promotion", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		next := dpuIn(s.replica)
		inject(ctx, next, fault.Fault{Method: attachNS, Hang: true, Count: -1})
		d := within(bothDead)
		powerOff(ctx, s.host)
		s.reaches(ctx, moorv1alpha1.ClaimGranted, next)
		powerOff(ctx, s.replica)
		mend(ctx, next)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(BeElementOf(s.host, s.replica))
		s.judge(ctx)
	})

	It("when the old host returns in the middle of its fence", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		inject(ctx, s.dpu, fault.Fault{Method: detachNS, Hang: true, Count: -1})
		powerOff(ctx, s.host)
		s.reaches(ctx, moorv1alpha1.ClaimFencing, s.dpu)
		By("powering " + s.host + " on again")
		Expect(bed.PowerOn(ctx, s.host)).To(Succeed())
		told(ctx, s.host, "Fencing", "Healthy")
		d := within(bothDead)
		mend(ctx, s.dpu)
		s.again(ctx, d)
		s.judge(ctx)
	})
})

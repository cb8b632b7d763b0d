//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// outage is how long each API server stands still: half of it alone, half of it
// together with the other one.
const outage = time.Minute

var _ = Describe("a fault that leaves the host alive", slow, bothModes, func() {
	It("is held and told: the host is cut off, its DPU is cut off, its DPU loses power", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-2", "host-3")
		hostCut, dpuCut, dpuOff := all[0], all[1], all[2]

		By("cutting host-1 and dpu-2 off from the API servers, and powering dpu-3 off")
		joinHost := during(ctx, "host-1", bed.CutNetwork, bed.JoinNetwork)
		joinDPU := during(ctx, "dpu-2", bed.CutAPI, bed.JoinAPI)
		powerOff(ctx, "dpu-3")
		dpuOff.writer().ends(ctx)
		told(ctx, "host-2", "Held", "DPUDead")
		told(ctx, "host-3", "Held", "DPUDead")
		told(ctx, "host-1", "Held", "HostCutOff")
		hostCut.writer().more(ctx)
		dpuCut.stays(ctx)
		for _, s := range all {
			Expect(s.claim(ctx).Status).To(HaveValue(And(HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Holder", s.dpu))))
		}

		By("mending all three")
		joinHost(ctx)
		joinDPU(ctx)
		Expect(bed.PowerOn(ctx, "dpu-3")).To(Succeed())
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		hostCut.stays(ctx)
		hostCut.judge(ctx)
		dpuCut.stays(ctx)
		dpuCut.judge(ctx)
		// Its file system has seen I/O errors, as that of any host whose disk
		// went: a new pod is what mends that.
		d := within(hostDead)
		Expect(clients.Host.Delete(ctx, dpuOff.pod)).To(Succeed())
		dpuOff.again(ctx, d)
		dpuOff.judge(ctx)
	})

	It("is not taken for one when the API servers stop: the pod goes on writing, and nothing fails over", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		before := s.writer().count()
		goesOn := func() {
			GinkgoHelper()
			Consistently(s.writer().done).WithContext(ctx).WithTimeout(outage / 2).WithPolling(tick).ShouldNot(BeClosed())
		}
		By("stopping the host cluster's")
		resumeHost := during(ctx, "host-apiserver", bed.Pause, bed.Resume)
		goesOn()
		By("stopping the DPU cluster's too")
		resumeDPU := during(ctx, "dpu-apiserver", bed.Pause, bed.Resume)
		goesOn()
		By("letting the host cluster's go on")
		resumeHost(ctx)
		goesOn()
		resumeDPU(ctx)
		Expect(s.writer().count()).To(BeNumerically(">", before+int(outage/time.Second)), "it wrote all the time")
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		s.stays(ctx)
		s.judge(ctx)
	})
})

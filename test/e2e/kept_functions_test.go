//go:build e2e

package e2e

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// recovered is for a SNAP service that comes back with its state: the target of docs/benchmarks.md is a third.
const recovered = 15 * time.Second

// onKept skips a test where functions end with their SNAP service.
func onKept() {
	GinkgoHelper()
	if !bed.Options().KeepFunctions {
		Skip("the functions of this bed end with SNAP: bring it up with --keep-functions")
	}
}

// mountInPod names the mount of the volume, and its device, as the pod sees them.
func mountInPod(ctx context.Context, s *subject) string {
	GinkgoHelper()
	return sh(ctx, s.key, "grep ' /data ' /proc/self/mountinfo")
}

var _ = Describe("a SNAP service that is killed and has its state", slow, Label("keep-functions"), func() {
	It("goes on where it ended: the pod has seen a pause", func(ctx context.Context) {
		onKept()
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		mount := mountInPod(ctx, s)
		for range 3 {
			d := within(recovered)
			restart(ctx, "snap-emulator-"+s.dpu)
			s.stays(ctx)
			d.met(s.key.Name + " writes on")
		}
		Expect(mountInPod(ctx, s)).To(Equal(mount), "the mount is the same")
		Expect(runs(ctx, s.key).Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())))
		Expect(dpuVolume(ctx, s.volume).Status.Restarts).To(BeNil())
		GinkgoWriter.Printf("%s: the longest pause between two lines was %s\n", s.key.Name, s.writer().longest().Round(time.Millisecond))
		s.judge(ctx)
	})

	It("writes nothing under a right that was taken while it was away", func(ctx context.Context) {
		onKept()
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		back := during(ctx, "snap-emulator-"+s.dpu, func(_ context.Context, name string) error { return bed.Kill(name, syscall.SIGKILL) }, bed.Restart)
		Eventually(func(ctx context.Context) []moorv1alpha1.Receipt { return s.claim(ctx).Status.Receipts }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick).Should(ContainElement(And(HaveField("Kind", moorv1alpha1.ReceiptStorage), HaveField("Epoch", int64(1)))))
		Expect(s.writer().done).NotTo(BeClosed(), "what the host has asked for waits still")
		d := within(hostDead + drained)
		back(ctx)
		s.writer().ends(ctx)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		s.judge(ctx)
		Eventually(deadMounts(s.host)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})
})

//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// pause is how long an old writer stands still across its failover.
const pause = 30 * time.Second

// cutLink and joinLink are of host-1.
func cutLink(ctx context.Context, _ string) error  { return bed.CutLink(ctx, 1) }
func joinLink(ctx context.Context, _ string) error { return bed.JoinLink(ctx, 1) }

// In all of these the old writer lives, and would write.
var _ = Describe("an old writer that lives", slow, bothModes, func() {
	It("stands still for long, with its whole host, and writes nothing when it goes on", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		By("freezing host-1, and cutting the link on which its DPU looks at it")
		d := within(hostDead)
		thaw := during(ctx, "host-1", bed.Freeze, bed.Thaw)
		frozen := time.Now()
		join := during(ctx, "host-1", cutLink, joinLink)
		old := s.writer()
		s.again(ctx, d)
		Consistently(s.writer().done).WithContext(ctx).WithTimeout(pause - time.Since(frozen)).WithPolling(tick).ShouldNot(BeClosed())
		thaw(ctx)
		join(ctx)
		old.ends(ctx)
		s.writer().more(ctx)
		s.judge(ctx)
	})

	It("is cut off with its DPU, or its DPU stands still: the storage's word counts, and nothing lands after it", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-2")
		cut, frozen := all[0], all[1]
		// The first that is found dead must not have its pod placed on the other, in the
		// moment before that is found dead too.
		for _, s := range all {
			cordon(ctx, s.host, true)
			DeferCleanup(func(ctx context.Context) { cordon(ctx, s.host, false) })
		}
		By("cutting host-1 and dpu-1 off from the API servers; freezing SNAP and node driver of dpu-2 and cutting host-2 off")
		d := within(bothDead)
		var resume []func(context.Context)
		for _, name := range []string{"snap-node-driver-dpu-2", "snap-emulator-dpu-2"} {
			resume = append(resume, during(ctx, name, bed.Pause, bed.Resume))
		}
		during(ctx, "dpu-1", bed.CutAPI, bed.JoinAPI)
		during(ctx, "host-1", bed.CutNetwork, bed.JoinNetwork)
		during(ctx, "host-2", bed.CutNetwork, bed.JoinNetwork)
		old := cut.writer()
		paused := frozen.writer()
		cut.again(ctx, d)
		frozen.again(ctx, d)
		old.ends(ctx)
		Expect(cut.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptStorage))
		Expect(frozen.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptStorage))
		By("letting SNAP and node driver of dpu-2 go on")
		for _, goOn := range resume {
			goOn(ctx)
		}
		paused.ends(ctx)
		for _, s := range all {
			Expect(s.pod.Spec.NodeName).To(Equal("host-3"))
			s.writer().more(ctx)
			s.judge(ctx)
		}
	})

	It("is heard again in the middle of its fence: a pod that can run there alone gets its volume back", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		for _, other := range []string{"host-2", "host-3"} {
			cordon(ctx, other, true)
			DeferCleanup(func(ctx context.Context) { cordon(ctx, other, false) })
		}
		By("letting SNAP of dpu-1 stand still, so that it withdraws nothing, silencing host-1, and cutting the link on which the DPU looks at it")
		resume := during(ctx, "snap-emulator-dpu-1", bed.Pause, bed.Resume)
		var speak []func(context.Context)
		for _, name := range []string{"snap-csi-plugin-host-1", "kubelet-host-1"} {
			speak = append(speak, during(ctx, name, bed.Pause, bed.Resume))
		}
		join := during(ctx, "host-1", cutLink, joinLink)
		s.reaches(ctx, moorv1alpha1.ClaimFencing, s.dpu)
		By("joining the link, letting host-1 speak, and then letting SNAP go on")
		join(ctx)
		for _, goOn := range speak {
			goOn(ctx)
		}
		Eventually(conditionOf("host-1", moorv1alpha1.ConditionFailover)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", HavePrefix("Healthy")))))
		d := within(bothDead)
		resume(ctx)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).To(Equal(s.host))
		s.judge(ctx)
	})
})

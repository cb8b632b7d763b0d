//go:build e2e

package e2e

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/bmc"
	"github.com/moor-storage/moor/test/devcluster"
)

// bmcNamespace is where PowerControls are.
const bmcNamespace = "dpf-operator-system"

// powered gives a host a BMC that switches its DPU off with it, on record until the test
// ends. To be called before the namespace is made, which is cleared first.
func powered(ctx context.Context, host string, on moorv1alpha1.PowerOnPolicy) *devcluster.BMC {
	GinkgoHelper()
	b, err := bed.BMC(ctx, host, dpuIn(host))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.Stop)
	for _, o := range b.Record(host, bmcNamespace, on) {
		Expect(clients.Host.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(clients.Host.Delete(ctx, o)).To(Succeed()) })
	}
	return b
}

// switchedOff is whether a host is on record as switched off.
func switchedOff(host string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		c := &moorv1alpha1.PowerControl{}
		err := clients.Host.Get(ctx, client.ObjectKey{Namespace: bmcNamespace, Name: host}, c)
		return c.Status.HostOff != nil, err
	}
}

// In all of them host and DPU are cut off and write on, and nothing is revoked: only their
// power ends that.
var _ = Describe("a host that is cut off with its DPU, and has a BMC", slow, bothModes, func() {
	It("is switched off, the pod runs elsewhere, and the host is switched on again", func(ctx context.Context) {
		b := powered(ctx, "host-1", moorv1alpha1.PowerOnReleased)
		unvouched(ctx)
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		By("cutting host-1 and dpu-1 off")
		d := within(bothDead + powerCut)
		Expect(bed.CutNetwork(ctx, s.host)).To(Succeed())
		Expect(bed.CutNetwork(ctx, s.dpu)).To(Succeed())
		s.writer().ends(ctx)
		Expect(switchedOff(s.host)(ctx)).To(BeTrue(), "its power ended that, and is on record")
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptPower))
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		By("awaiting that host-1 is switched on again")
		Eventually(func(ctx context.Context) ([]string, error) {
			resets, err := b.Resets(ctx)
			return slices.Compact(resets), err // it is asked until it is on
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal([]string{"ForceOff", "On"}))
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		Eventually(switchedOff(s.host)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeFalse())
		s.writer().more(ctx)
		s.judge(ctx)
	})

	DescribeTable("keeps its volume while its BMC lies, and loses it when the BMC does what it says", func(ctx context.Context, lie bmc.Lie, words string) {
		b := powered(ctx, "host-1", moorv1alpha1.PowerOnReleased)
		unvouched(ctx)
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		Expect(b.Lie(ctx, string(lie))).To(Succeed())
		Expect(bed.CutNetwork(ctx, s.host)).To(Succeed())
		Expect(bed.CutNetwork(ctx, s.dpu)).To(Succeed())
		Eventually(conditionOf(s.host, moorv1alpha1.ConditionFailover)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(HaveField("Message", ContainSubstring(words))))
		Consistently(func(ctx context.Context) moorv1alpha1.ClaimPhase { return s.claim(ctx).Status.Phase }).WithContext(ctx).
			WithTimeout(powerCut).WithPolling(tick).Should(Equal(moorv1alpha1.ClaimFencing))
		By("letting it tell the truth")
		Expect(b.Lie(ctx, string(bmc.None))).To(Succeed())
		s.again(ctx, within(bothDead+2*powerCut))
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptPower))
		s.judge(ctx)
	},
		Entry("accepts and does nothing", bmc.Accepts, "is On at"),
		Entry("says that the chassis is on", bmc.ChassisOn, "its chassis to be On"),
		Entry("answers for another machine", bmc.OtherMachine, "answers for"),
		Entry("hangs", bmc.Hangs, "the BMC does not answer"),
		Entry("refuses the credentials", bmc.Unauthorized, "the BMC refuses the credentials"),
		Entry("does not say how it is", bmc.NoState, "is Unknown at"),
		Entry("refuses", bmc.Refuses, "the BMC refuses the request"),
	)
})

//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// wishDrain sets or takes back spec.drain of a host.
func wishDrain(ctx context.Context, host string, wish *moorv1alpha1.DrainRequest) {
	GinkgoHelper()
	node := &moorv1alpha1.DPUStorageNode{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: host}, node)).To(Succeed())
	before := node.DeepCopy()
	node.Spec.Drain = wish
	Expect(clients.Host.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}

// drainSays waits until the condition Drained of a host says these words.
func drainSays(ctx context.Context, host string, words ...string) {
	GinkgoHelper()
	for _, w := range words {
		Eventually(hostSays).WithContext(ctx).WithArguments(host, moorv1alpha1.ConditionDrained).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(w))
	}
}

var _ = Describe("a DPU that is drained", bothModes, func() {
	It("loses its pods within their budget, says when it can be rebooted, and takes pods again afterwards", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		other := ns.pod(ctx, "other", s.host)
		runs(ctx, other)
		// Its volume is there before, so that the scheduler knows whose it is.
		files := ns.claim(ctx, claim{name: "late"})
		volumeOf(ctx, files)
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "all-of-it", Namespace: ns.name},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "subject-0"}},
			},
		}
		Expect(clients.Host.Create(ctx, budget)).To(Succeed())
		Eventually(func(ctx context.Context) (int64, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(budget), budget)
			return budget.Status.ObservedGeneration, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", 0))

		By("draining " + s.dpu + " while the budget allows no eviction")
		DeferCleanup(func(ctx context.Context) { wishDrain(ctx, s.host, nil) })
		wishDrain(ctx, s.host, &moorv1alpha1.DrainRequest{Reason: "new BFB"})
		drainSays(ctx, s.host, "False/Budget: pod "+s.key.String()+" is not evicted yet: The disruption budget all-of-it needs 1 healthy pods")
		s.stays(ctx)

		By("letting the budget allow it")
		Expect(clients.Host.Delete(ctx, budget)).To(Succeed())
		s.again(ctx, within(patience))
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		drainSays(ctx, s.host, "True/Drained: it is safe to reboot DPU "+s.dpu)
		Expect(s.claim(ctx).Status.Holder).To(Equal(dpuIn(s.pod.Spec.NodeName)))
		late := ns.pod(ctx, "late", s.host, files)
		Eventually(eventsOf(ns.name, late.Name)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(ContainSubstring("DPU " + s.dpu + " is being drained: new BFB"))

		By("booting " + s.dpu)
		powerOff(ctx, s.dpu)
		Expect(bed.PowerOn(ctx, s.dpu)).To(Succeed())
		s.writer().more(ctx)
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		drainSays(ctx, s.host, "True/Drained")
		runs(ctx, other)

		By("taking the drain back")
		wishDrain(ctx, s.host, nil)
		Eventually(hostSays).WithContext(ctx).WithArguments(s.host, moorv1alpha1.ConditionDrained).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		// A scheduler tries a pod that an extender refused again when something happens that it watches.
		remove(ctx, podObject(other))
		runs(ctx, late)
		Expect(reasonsOf("default", "DPUStorageNode", s.host)(ctx)).To(ContainElements(moorv1alpha1.EventDrainBegun, moorv1alpha1.EventDrained, moorv1alpha1.EventDrainEnded))
		s.judge(ctx)
	})
})

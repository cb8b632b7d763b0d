//go:build e2e

package e2e

import (
	"context"
	"slices"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/record"
)

const hostController = "snap-host-controller"

// withFlag runs snap-host-controller with one more flag until the test ends.
func withFlag(ctx context.Context, flag string) {
	GinkgoHelper()
	all, err := bed.Processes()
	Expect(err).NotTo(HaveOccurred())
	i := slices.IndexFunc(all, func(p record.Running) bool { return p.Name == hostController })
	Expect(i).To(BeNumerically(">=", 0), "it is on record")
	usual := all[i].Process
	run := func(ctx context.Context, p devcluster.Process) {
		GinkgoHelper()
		Expect(bed.Kill(hostController, syscall.SIGKILL)).To(Succeed())
		Expect(bed.Start(ctx, p)).To(Succeed())
	}
	DeferCleanup(func(ctx context.Context) { run(ctx, usual) })
	other := usual
	other.Argv = append(slices.Clone(usual.Argv), flag)
	run(ctx, other)
}

// seenDead waits until the DPU of a host says that its host is dead.
func seenDead(ctx context.Context, host string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (*moorv1alpha1.HostObservation, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		err := clients.DPU.Get(ctx, client.ObjectKey{Name: dpuIn(host)}, node)
		if err != nil || node.Status.DPU == nil {
			return nil, err
		}
		return node.Status.DPU.Host, nil
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveValue(HaveField("Alive", false)))
}

// restarted waits until the pod runs again where it was, and writes.
func (s *subject) restarted(ctx context.Context) {
	GinkgoHelper()
	before := s.pod.Status.ContainerStatuses[0].ContainerID
	now := &corev1.Pod{}
	Eventually(func(ctx context.Context) (bool, error) {
		if err := clients.Host.Get(ctx, s.key, now); err != nil || len(now.Status.ContainerStatuses) == 0 {
			return false, err
		}
		c := now.Status.ContainerStatuses[0]
		return c.Ready && c.ContainerID != before, nil
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue(), "the pod runs again")
	Expect(now.UID).To(Equal(s.pod.UID), "the pod is the same")
	s.pod = now
	s.write(ctx)
}

// granted expects that nothing was taken from the first holder.
func (s *subject) granted(ctx context.Context) {
	GinkgoHelper()
	Expect(s.claim(ctx).Status).To(HaveValue(And(
		HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Holder", s.dpu), HaveField("Epoch", int64(1)))))
}

var _ = Describe("a storm", slow, bothModes, func() {
	It("of all hosts at once is held and told, and nothing is taken from them", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		// Who is not there while they die learns of all at the same instant.
		By("killing " + hostController)
		kill(hostController)
		powerOff(ctx, bed.Nodes()...)
		for _, host := range bed.Nodes() {
			seenDead(ctx, host)
		}
		start(ctx, hostController)
		told(ctx, s.host, "Held", "3 of 3 hosts look dead at once")
		Consistently(func(ctx context.Context) moorv1alpha1.ClaimPhase { return s.claim(ctx).Status.Phase }).WithContext(ctx).
			WithTimeout(calm).WithPolling(tick).Should(Equal(moorv1alpha1.ClaimGranted))
		By("powering all hosts on again")
		for _, host := range bed.Nodes() {
			Expect(bed.PowerOn(ctx, host)).To(Succeed())
		}
		s.restarted(ctx)
		s.granted(ctx)
		s.judge(ctx)
	})

	It("beyond the budget waits its turn, and says so", func(ctx context.Context) {
		ns := faulty(ctx)
		first := ns.subject(ctx, "host-1")
		// The second host to die is not the one where the first pod will run: that might
		// be placed there in the very instant before.
		hosts := slices.DeleteFunc(bed.Nodes(), func(name string) bool { return name == first.host || name == first.replica })
		second := ns.subject(ctx, hosts[0])
		withFlag(ctx, "--failover-budget=1")
		dues := []due{within(hostDead)}
		powerOff(ctx, first.host)
		Eventually(func(ctx context.Context) []moorv1alpha1.Receipt { return first.claim(ctx).Status.Receipts }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		dues = append(dues, within(budgetSpent))
		powerOff(ctx, second.host)
		told(ctx, second.host, "Held", "the budget of 1 failovers a minute is spent")
		second.granted(ctx)
		for i, s := range []*subject{first, second} {
			s.again(ctx, dues[i])
			Expect(s.pod.Spec.NodeName).To(Equal(first.replica))
			s.judge(ctx)
		}
	})
})

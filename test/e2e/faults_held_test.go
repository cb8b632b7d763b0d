//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		d := within(bothDead + drained)
		Expect(bed.PowerOn(ctx, "dpu-3")).To(Succeed())
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		hostCut.stays(ctx)
		hostCut.judge(ctx)
		dpuCut.stays(ctx)
		dpuCut.judge(ctx)
		// Its file system has seen I/O errors, as that of any host whose disk
		// went: it is mounted anew for a new pod.
		dpuOff.again(ctx, d)
		dpuOff.judge(ctx)
	})

	It("and is held fails over when a person requests it, with the receipt of its DPU, once", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		join := during(ctx, s.host, bed.CutNetwork, bed.JoinNetwork)
		told(ctx, s.host, "Held", "HostCutOff")
		s.writer().more(ctx)

		By("requesting it for a card that is not in the host")
		DeferCleanup(func(ctx context.Context) { request(ctx, s.host, nil) })
		r := requestFor(ctx, s.host)
		stranger := *r
		stranger.DPUName = "dpu-of-before"
		request(ctx, s.host, &stranger)
		Eventually(conditionOf(s.host, moorv1alpha1.ConditionFailoverRequested)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(And(HaveField("Reason", moorv1alpha1.ReasonRefused), HaveField("Message", ContainSubstring("dpu-of-before")))))
		Expect(s.claim(ctx).Status).To(HaveValue(HaveField("Phase", moorv1alpha1.ClaimGranted)))

		By("requesting it as it is")
		d := within(bothDead)
		request(ctx, s.host, r)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		Expect(s.claim(ctx).Status.Receipts).To(ContainElement(HaveField("Kind", moorv1alpha1.ReceiptDPU)))

		By("letting the host come back")
		join(ctx)
		Eventually(conditionOf(s.host, moorv1alpha1.ConditionFailoverRequested)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(HaveField("Reason", moorv1alpha1.ReasonCarriedOut)))
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		s.writer().more(ctx)
		s.judge(ctx)
	})

	It("fails over without a request when its time is over, and not before", func(ctx context.Context) {
		limits(ctx, "--failover-not-ready-after=1m0s", "--failover-dpu-silent-after=1m0s")
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-2")
		hostCut, dpuOff := all[0], all[1]
		join := during(ctx, hostCut.host, bed.CutNetwork, bed.JoinNetwork)
		d := within(notReady + doubted + bothDead)
		powerOff(ctx, dpuOff.dpu)
		dpuOff.writer().ends(ctx)
		Eventually(conditionOf(dpuOff.host, moorv1alpha1.ConditionFailover)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(And(HaveField("Reason", "Held"), HaveField("Message", ContainSubstring("it fails over once it has been so for 1m0s")))))
		hostCut.writer().more(ctx)
		By("awaiting that the pod of the host that is cut off, and of the one whose DPU is dead, run elsewhere")
		hostCut.again(ctx, d)
		Expect(hostCut.pod.Spec.NodeName).NotTo(Equal(hostCut.host))
		Expect(hostCut.claim(ctx).Status.Receipts).To(ContainElement(HaveField("Kind", moorv1alpha1.ReceiptDPU)))
		dpuOff.again(ctx, d)
		Expect(dpuOff.pod.Spec.NodeName).NotTo(Equal(dpuOff.host))
		By("mending both")
		join(ctx)
		Expect(bed.PowerOn(ctx, dpuOff.dpu)).To(Succeed())
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		for _, s := range all {
			s.writer().more(ctx)
			s.judge(ctx)
		}
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

// doubted is how long a host may be in doubt in these tests, and notReady after what time the
// control plane calls one NotReady whose kubelet is silent.
const doubted, notReady = time.Minute, time.Minute

// limits has snap-host-controller run with more flags until the test ends.
func limits(ctx context.Context, flags ...string) {
	GinkgoHelper()
	const name = "snap-host-controller"
	Expect(bed.RestartWith(ctx, name, func(argv []string) []string { return append(argv, flags...) })).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(bed.RestartWith(ctx, name, func(argv []string) []string { return argv[:len(argv)-len(flags)] })).To(Succeed())
	})
}

// requestFor is a request that the host fails over, as it is now, by who runs the tests.
func requestFor(ctx context.Context, host string) *moorv1alpha1.FailoverRequest {
	GinkgoHelper()
	core, me := &corev1.Node{}, &authenticationv1.SelfSubjectReview{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: host}, core)).To(Succeed())
	Expect(clients.Host.Create(ctx, me)).To(Succeed())
	return &moorv1alpha1.FailoverRequest{
		DPUName: dpuIn(host), BootID: core.Status.NodeInfo.BootID, Time: metav1.Now(),
		RequestedBy: me.Status.UserInfo.Username, Reason: "it does not come back",
	}
}

// request writes a request, or withdraws it.
func request(ctx context.Context, host string, r *moorv1alpha1.FailoverRequest) {
	GinkgoHelper()
	node := &moorv1alpha1.DPUStorageNode{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: host}, node)).To(Succeed())
	before := node.DeepCopy()
	node.Spec.Failover = r
	Expect(clients.Host.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}

// conditionOf reads a condition of a host's DPUStorageNode.
func conditionOf(host, kind string) func(context.Context) (*metav1.Condition, error) {
	return func(ctx context.Context) (*metav1.Condition, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node)
		return meta.FindStatusCondition(node.Status.Conditions, kind), err
	}
}

//go:build e2e

package e2e

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

// leased gives a DPU a watchdog and has its driver give a lease, until the test
// ends. To be called before the namespace is made, which is cleared first.
func leased(ctx context.Context, dpu string) *devcluster.Watchdog {
	GinkgoHelper()
	dog, err := bed.Watchdog(ctx, dpu, func(err error) { GinkgoWriter.Println("watchdog:", err) })
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(dog.Stop)
	flags := []string{"--watchdog=" + dog.Path, "--watchdog-timeout=5s", "--lease-duration=8s", "--lease-drain=3s", "--heartbeat-period=2s"}
	driver := "snap-node-driver-" + dpu
	DeferCleanup(func(ctx context.Context) {
		Expect(bed.RestartWith(ctx, driver, func(argv []string) []string {
			return slices.DeleteFunc(argv, func(arg string) bool { return slices.Contains(flags, arg) })
		})).To(Succeed())
		Eventually(leaseOf(dpu)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNil())
	})
	Expect(bed.RestartWith(ctx, driver, func(argv []string) []string { return append(argv, flags...) })).To(Succeed())
	Eventually(leaseOf(dpu)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeNil())
	return dog
}

// leaseOf is the lease that a DPU gives.
func leaseOf(dpu string) func(context.Context) (*moorv1alpha1.DPULease, error) {
	return func(ctx context.Context) (*moorv1alpha1.DPULease, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		err := clients.DPU.Get(ctx, client.ObjectKey{Name: dpu}, node)
		if err != nil || node.Status.DPU == nil {
			return nil, err
		}
		return node.Status.DPU.Lease, nil
	}
}

// unvouched takes from the vendor the word that its storage revokes, until the
// test ends.
func unvouched(ctx context.Context) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) { Expect(moor.Revokes(ctx, clients.DPU, true)).To(Succeed()) })
	Expect(moor.Revokes(ctx, clients.DPU, false)).To(Succeed())
}

// In both the host lives and writes, and nothing is revoked: only the DPU itself ends
// that.
var _ = Describe("a DPU that gives a lease", slow, bothModes, func() {
	It("withdraws when it is cut off from the API server, and the pod runs elsewhere once the bound has passed", func(ctx context.Context) {
		dog := leased(ctx, "dpu-1")
		unvouched(ctx)
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		By("cutting dpu-1 off from the API servers")
		join := during(ctx, "dpu-1", bed.CutAPI, bed.JoinAPI)
		cut, d := time.Now(), within(leaseOver)
		s.writer().ends(ctx)
		GinkgoWriter.Printf("cut off to the last write of the old host: %s\n", time.Since(cut).Round(time.Millisecond))
		Expect(s.claim(ctx).Status.Holder).To(Equal("dpu-1"), "it withdrew before the right was taken from it")
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptLeaseBound))
		Expect(s.pod.Spec.NodeName).NotTo(Equal("host-1"))
		Expect(dog.Fired).NotTo(BeClosed(), "a driver that obeys is not reset")
		join(ctx)
		s.writer().more(ctx)
		s.judge(ctx)
	})

	It("is reset by its watchdog when its driver stands still, and only then the other host writes", ci, func(ctx context.Context) {
		dog := leased(ctx, "dpu-1")
		unvouched(ctx)
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		DeferCleanup(func(ctx context.Context) { Expect(bed.PowerOn(ctx, "dpu-1")).To(Succeed()) })
		By("stopping the driver of dpu-1 with SIGSTOP")
		Expect(bed.Pause(ctx, "snap-node-driver-dpu-1")).To(Succeed())
		stopped, d := time.Now(), within(leaseOver)
		s.writer().more(ctx)
		Eventually(dog.Fired).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		GinkgoWriter.Printf("SIGSTOP to the reset: %s\n", time.Since(stopped).Round(time.Millisecond))
		Expect(s.claim(ctx).Status.Holder).To(Equal("dpu-1"), "the reset came before the right was taken from it")
		s.writer().ends(ctx)
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptLeaseBound))
		s.judge(ctx)
	})
})

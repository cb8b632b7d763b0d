//go:build e2e

package e2e

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// pathTells waits until the condition of a volume says this of its paths.
func pathTells(ctx context.Context, volume, reason, words string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) string {
		c := meta.FindStatusCondition(dpuVolume(ctx, volume).Status.Conditions, storagev1alpha1.ConditionPathHealthy)
		if c == nil {
			return ""
		}
		return c.Reason + ": " + c.Message
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(And(HavePrefix(reason+": "), ContainSubstring(words)))
}

// events are the messages of the events with a reason about an object.
func events(ctx context.Context, about client.Object, reason string) ([]string, error) {
	var list corev1.EventList
	err := clients.Host.List(ctx, &list, client.InNamespace(about.GetNamespace()))
	var out []string
	for _, e := range list.Items {
		if e.Reason == reason && e.InvolvedObject.UID == about.GetUID() {
			out = append(out, e.Message)
		}
	}
	return out, err
}

var _ = Describe("a path to the storage", func() {
	It("that is lost for all DPUs moves nothing: I/O waits, and the same pod goes on", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		pod := s.pod.DeepCopy()
		back := during(ctx, "moor-target", bed.Pause, bed.Resume)
		pathTells(ctx, s.volume, storagev1alpha1.ReasonAllPathsLost, "nothing is moved")
		told(ctx, s.host, moorv1alpha1.ReasonPathLost, "no other DPU that has the volume reaches the storage either")
		Eventually(events).WithContext(ctx).WithArguments(pod, storagev1alpha1.EventPathLost).WithTimeout(patience).WithPolling(tick).
			Should(ContainElement(ContainSubstring("host-1 does not reach the storage")))
		Consistently(func(ctx context.Context) (*moorv1alpha1.WriterClaimStatus, error) {
			claim := &moorv1alpha1.WriterClaim{}
			err := clients.DPU.Get(ctx, client.ObjectKeyFromObject(s.claim(ctx)), claim)
			return claim.Status, err
		}).WithContext(ctx).WithTimeout(20 * time.Second).WithPolling(tick).Should(HaveValue(HaveField("Phase", moorv1alpha1.ClaimGranted)))
		back(ctx)
		s.stays(ctx)
		pathTells(ctx, s.volume, storagev1alpha1.ReasonSuccess, "")
		Expect(runs(ctx, s.key).Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())))
		s.judge(ctx)
	})

	It("that one DPU has lost moves the pod to a host whose DPU has it, once the storage has shut the first one out", slow, ci, bothModes, Label("epochs"), func(ctx context.Context) {
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-2")
		s, other := all[0], all[1]
		d := within(pathLost)
		back := during(ctx, s.dpu, bed.CutStorage, bed.JoinStorage)
		pathTells(ctx, s.volume, storagev1alpha1.ReasonPathLost, "host "+s.host)
		Eventually(hostSays).WithContext(ctx).WithArguments(s.host, moorv1alpha1.ConditionPathHealthy).WithTimeout(patience).WithPolling(tick).
			Should(And(HavePrefix("False/"), ContainSubstring(s.volume)))
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		shutOut := moorv1alpha1.ReceiptStorage
		if bed.Options().Epochs {
			shutOut = moorv1alpha1.ReceiptMedium
		}
		Expect(s.receipt(ctx)).To(Equal(shutOut))
		other.stays(ctx)
		back(ctx)
		s.judge(ctx)
		other.judge(ctx)
	})

	It("that one DPU has lost moves the pod of a raw block volume too, and loses nothing of it", slow, Label("epochs"), func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.newSubject(ctx, "snap-failover", "host-1", raw)
		s.raw = true
		s.begin(ctx)
		d := within(pathLost)
		back := during(ctx, s.dpu, bed.CutStorage, bed.JoinStorage)
		pathTells(ctx, s.volume, storagev1alpha1.ReasonPathLost, "host "+s.host)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		Expect(s.receipt(ctx)).To(BeElementOf(moorv1alpha1.ReceiptStorage, moorv1alpha1.ReceiptMedium))
		back(ctx)
		s.judge(ctx)
	})

	It("that goes with a SNAP service which stays away moves the pod to a host whose DPU has it", slow, bothModes, Label("epochs"), func(ctx context.Context) {
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-2")
		s, other := all[0], all[1]
		d := within(snapAway)
		back := during(ctx, "snap-emulator-"+s.dpu, func(_ context.Context, name string) error { return bed.Kill(name, syscall.SIGKILL) }, bed.Restart)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		Expect(s.receipt(ctx)).To(BeElementOf(moorv1alpha1.ReceiptStorage, moorv1alpha1.ReceiptMedium), "the DPU cannot withdraw anything")
		other.stays(ctx)
		back(ctx)
		s.judge(ctx)
		other.judge(ctx)
	})
})

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
)

// moored makes a StatefulSet of one pod with one volume of the class.
func (ns *testNamespace) moored(ctx context.Context, class string) client.ObjectKey {
	GinkgoHelper()
	return ns.mooredAt(ctx, "moored", class, "")
}

// mooredAt is moored with a name, whose pod goes to host if it can.
func (ns *testNamespace) mooredAt(ctx context.Context, name, class, host string, change ...func(*appsv1.StatefulSet)) client.ObjectKey {
	GinkgoHelper()
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns.name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To(int64(1)), Affinity: kit.Preferring(host),
					Containers: []corev1.Container{{
						Name: "main", Image: kit.Image, Command: []string{"sleep", "1000000"},
						VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
				},
			}},
		},
	}
	for _, f := range change {
		f(set)
	}
	Expect(clients.Host.Create(ctx, set)).To(Succeed())
	return client.ObjectKey{Namespace: ns.name, Name: name + "-0"}
}

// replicaOf returns the node of the volume's ready replica, "" if there is none.
func replicaOf(volume string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return kit.ReadyReplica(ctx, clients.Host, volume) }
}

// recorded begins to record the claim of a volume.
func recorded(ctx context.Context, volume string) *proof.Recorder {
	GinkgoHelper()
	// What comes after a test that failed belongs to it.
	whole, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	dpu, err := dpuClusterOf(ctx, volume)
	Expect(err).NotTo(HaveOccurred())
	record, err := proof.Watch(whole, dpu, kit.Namespace, volume)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			tellViolations(ctx, record, volume)
		}
	})
	return record
}

// tellViolations writes down what the proof says, for a test that failed before
// it came to it.
func tellViolations(ctx context.Context, record *proof.Recorder, volume string) {
	found, err := violations(ctx, record, volume)
	if err != nil {
		GinkgoWriter.Printf("volume %s: its history is not known: %v\n", volume, err)
	}
	for _, v := range found {
		GinkgoWriter.Printf("volume %s: %s\n", volume, v)
	}
}

// violations is what the proof finds wrong with a volume's history.
func violations(ctx context.Context, record *proof.Recorder, volume string, journals ...proof.Journal) ([]proof.Violation, error) {
	dpu, err := dpuClusterOf(ctx, volume)
	if err != nil {
		return nil, err
	}
	id, err := kit.VendorVolume(ctx, dpu, volume)
	if err != nil {
		return nil, err
	}
	return violationsIn(ctx, record, volume, kit.LogsOf(id), journals...)
}

// violationsIn is violations of a volume that is in the logs under other names.
func violationsIn(ctx context.Context, record *proof.Recorder, volume string, names kit.Logs, journals ...proof.Journal) ([]proof.Violation, error) {
	// The logs are read first: they must not know more than the record.
	h, err := kit.RecordedAs(ctx, bed, names)
	if err != nil {
		return nil, err
	}
	if h.States, err = record.States(ctx); err != nil {
		return nil, err
	}
	if len(h.Writes) == 0 || len(h.Reads) == 0 || len(h.Exposures) == 0 {
		return nil, fmt.Errorf("%d writes and %d reads reached the medium, and the volume was shown %d times: none may be 0", len(h.Writes), len(h.Reads), len(h.Exposures))
	}
	h.Volume, h.Journals = volume, journals
	return proof.Check(h), nil
}

// proven expects that the volume had one writer at a time from its beginning,
// and that the journals lost nothing.
func proven(ctx context.Context, record *proof.Recorder, volume string, journals ...proof.Journal) {
	GinkgoHelper()
	found, err := violations(ctx, record, volume, journals...)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeEmpty())
}

var _ = Describe("failover", Ordered, bothModes, func() {
	BeforeAll(func(ctx context.Context) {
		Expect(kit.Apply(ctx, clients.Host, filepath.Join(bed.Root(), "deploy", "examples", "storage-failover.yaml"))).To(Succeed())
	})

	It("takes the storage's word when host and DPU lose power together", func(ctx context.Context) {
		ns := newNamespace(ctx)
		pod := ns.moored(ctx, "snap-failover")
		first := runs(ctx, pod)
		old := first.Spec.NodeName
		dpu := "dpu-" + strings.TrimPrefix(old, "host-")
		data := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-moored-0", Namespace: ns.name}}
		volume := volumeOf(ctx, data)
		record := recorded(ctx, volume)
		Eventually(replicaOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		sh(ctx, pod, "echo before | dd of=/data/journal conv=fsync 2>/dev/null")

		By("powering off " + old + " and " + dpu)
		d := within(bothDead)
		Expect(bed.PowerOff(ctx, old)).To(Succeed())
		Expect(bed.PowerOff(ctx, dpu)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(bed.PowerOn(ctx, dpu)).To(Succeed())
			Expect(bed.PowerOn(ctx, old)).To(Succeed())
		})
		_, err := kit.AwaitRunning(ctx, clients.Host, pod, string(first.UID), patience)
		Expect(err).NotTo(HaveOccurred())
		sh(ctx, pod, "echo after | dd of=/data/journal oflag=append conv=notrunc,fsync 2>/dev/null")
		d.met("the new pod has fsynced a line")
		got := sh(ctx, pod, "cat /data/journal")
		Expect(got).To(Equal("before\nafter\n"))
		claim := &moorv1alpha1.WriterClaim{}
		Expect(clients.DPU.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, claim)).To(Succeed())
		Expect(claim.Status.Receipts).To(ContainElement(HaveField("Kind", moorv1alpha1.ReceiptStorage)))
		proven(ctx, record, volume, proof.Journal{Name: "/data/journal", Acknowledged: []string{"before", "after"}, Read: strings.Fields(got)})
	})

	It("runs the pod again at its replica when the host loses power, and loses no acknowledged write", func(ctx context.Context) {
		ns := newNamespace(ctx)
		pod := ns.moored(ctx, "snap-failover")
		first := runs(ctx, pod)
		old := first.Spec.NodeName
		data := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-moored-0", Namespace: ns.name}}
		volume := volumeOf(ctx, data)
		record := recorded(ctx, volume)
		var replica string
		Eventually(replicaOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		replica, err := replicaOf(volume)(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(replica).NotTo(Equal(old))
		var acknowledged []string
		for i := range 5 {
			line := fmt.Sprintf("line-%d", i)
			sh(ctx, pod, "echo %s | dd of=/data/journal oflag=append conv=notrunc,fsync 2>/dev/null", line)
			acknowledged = append(acknowledged, line)
		}
		epoch := attachment(ctx, old, volume).Status.Epoch

		By("powering off " + old)
		d := within(hostDead)
		Expect(bed.PowerOff(ctx, old)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(bed.PowerOn(ctx, old)).To(Succeed()) })
		again, err := kit.AwaitRunning(ctx, clients.Host, pod, string(first.UID), patience)
		Expect(err).NotTo(HaveOccurred())
		sh(ctx, pod, "echo after | dd of=/data/journal oflag=append conv=notrunc,fsync 2>/dev/null")
		d.met("the new pod has fsynced a line")
		Expect(again.Spec.NodeName).To(Equal(replica), "it runs where the replica is")
		acknowledged = append(acknowledged, "after")
		got := strings.Fields(sh(ctx, pod, "cat /data/journal"))
		Expect(got).To(Equal(acknowledged), "every acknowledged write is read again")

		claim := &moorv1alpha1.WriterClaim{}
		Expect(clients.DPU.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, claim)).To(Succeed())
		Expect(claim.Status.Epoch).To(BeNumerically(">", epoch))
		Expect(claim.Status.Receipts).To(ContainElement(HaveField("Epoch", epoch)), "the old epoch ended with a receipt")
		writes, err := kit.TargetLog(vendorVolume(ctx, volume))
		Expect(err).NotTo(HaveOccurred())
		Expect(writersInOrder(writes)).To(HaveLen(2), "no write of the old host after the first of the new one")
		proven(ctx, record, volume, proof.Journal{Name: "/data/journal", Acknowledged: acknowledged, Read: got})
		node := &corev1.Node{}
		Expect(clients.Host.Get(ctx, client.ObjectKey{Name: old}, node)).To(Succeed())
		dead := corev1.NodeConditionType(moorv1alpha1.NodeConditionHostDead)
		Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", dead), HaveField("Status", corev1.ConditionTrue))), "what repairs machines is told")
		story := []string{
			storagev1alpha1.EventFailoverFencing, storagev1alpha1.EventFailoverFenced,
			storagev1alpha1.EventFailoverReleased, storagev1alpha1.EventPromoted, storagev1alpha1.EventAttached,
		}
		for _, told := range []func(context.Context) ([]string, error){
			reasonsOf(kit.Namespace, "DPUVolume", volume), reasonsOf(ns.name, "PersistentVolumeClaim", data.Name),
		} {
			Eventually(told).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainElements(story))
		}
		Eventually(reasonsOf(ns.name, "Pod", pod.Name, string(again.UID))).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(
			ContainElements(storagev1alpha1.EventPromoted, storagev1alpha1.EventAttached))
		GinkgoWriter.Println(described(ctx, volume))

		By("powering " + old + " on again")
		Expect(bed.PowerOn(ctx, old)).To(Succeed())
		Eventually(func(ctx context.Context) ([]corev1.Taint, error) {
			node := &corev1.Node{}
			err := clients.Host.Get(ctx, client.ObjectKey{Name: old}, node)
			return node.Spec.Taints, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty(), "the host is used again without a human")
	})
})

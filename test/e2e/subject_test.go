//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
)

// subject is a pod that writes to a volume with a replica, and all that is
// recorded of it from outside.
type subject struct {
	key    client.ObjectKey
	pod    *corev1.Pod
	volume string
	// host and dpu are where it wrote first.
	host, dpu string
	replica   string
	record    *proof.Recorder
	writers   []*writer
	// logs are the names under which the volume is in the logs; nil: it is the reference vendor's.
	logs func(context.Context, *subject) kit.Logs
	// raw: it uses the volume as a block device.
	raw bool
}

// faulty makes the namespace of a test that breaks something: when it ends, the whole
// bed has to be well again by itself.
func faulty(ctx context.Context) *testNamespace {
	GinkgoHelper()
	Expect(kit.Apply(ctx, clients.Host, filepath.Join(bed.Root(), "deploy", "examples", "storage-failover.yaml"))).To(Succeed())
	ns := newNamespace(ctx)
	DeferCleanup(func(ctx context.Context) {
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty(), "all hosts are used again without a human")
	})
	return ns
}

// unwell lists what is wrong with hosts and DPUs.
func unwell(ctx context.Context) ([]string, error) {
	var out []string
	for _, name := range bed.Nodes() {
		core, node := &corev1.Node{}, &moorv1alpha1.DPUStorageNode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: name}, core); err != nil {
			return nil, err
		}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return nil, err
		}
		for _, t := range core.Spec.Taints {
			out = append(out, name+" has the taint "+t.Key)
		}
		if !meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionReady) {
			out = append(out, name+" is not Ready: "+conditionWords(node.Status.Conditions))
		}
		if c := meta.FindStatusCondition(node.Status.Conditions, "Failover"); c != nil && c.Reason != "Recovered" {
			out = append(out, name+": "+c.Reason+": "+c.Message)
		}
	}
	return out, nil
}

// subjects makes one on each of the hosts, which may be the same, each with its
// replica.
func (ns *testNamespace) subjects(ctx context.Context, hosts ...string) []*subject {
	GinkgoHelper()
	var out []*subject
	for _, host := range hosts {
		out = append(out, ns.newSubject(ctx, "snap-failover", host))
	}
	for _, s := range out {
		s.begin(ctx)
	}
	return out
}

// newSubject makes one that does not write yet.
func (ns *testNamespace) newSubject(ctx context.Context, class, host string, change ...func(*appsv1.StatefulSet)) *subject {
	GinkgoHelper()
	s := &subject{key: ns.mooredAt(ctx, fmt.Sprintf("subject-%d", ns.subjectsMade), class, host, change...), host: host}
	ns.subjectsMade++
	return s
}

func (ns *testNamespace) subject(ctx context.Context, host string) *subject {
	GinkgoHelper()
	return ns.subjects(ctx, host)[0]
}

// begin waits until the pod has a replica and writes.
func (s *subject) begin(ctx context.Context) {
	GinkgoHelper()
	s.idles(ctx)
	s.write(ctx)
}

// idles waits until the pod runs and has a replica.
func (s *subject) idles(ctx context.Context) {
	GinkgoHelper()
	s.pod = runs(ctx, s.key)
	Expect(s.pod.Spec.NodeName).To(Equal(s.host))
	s.dpu = dpuIn(s.host)
	s.volume = volumeOf(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + s.key.Name, Namespace: s.key.Namespace}})
	s.record = recorded(ctx, s.volume)
	Eventually(replicaOf(s.volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
	var err error
	s.replica, err = replicaOf(s.volume)(ctx)
	Expect(err).NotTo(HaveOccurred())
}

func (s *subject) write(ctx context.Context) {
	GinkgoHelper()
	script := appendLines
	if s.raw {
		script = appendSectors(len(s.writers))
	}
	s.writers = append(s.writers, write(ctx, s.pod, fmt.Sprintf("%s-writer-%d", s.key.Name, len(s.writers)), script))
}

// writer is the one that began last.
func (s *subject) writer() *writer { return s.writers[len(s.writers)-1] }

// again waits until another pod runs in the place of the first, and writes, which
// is due.
func (s *subject) again(ctx context.Context, d due) {
	GinkgoHelper()
	pod, err := kit.AwaitRunning(ctx, clients.Host, s.key, string(s.pod.UID), patience)
	Expect(err).NotTo(HaveOccurred())
	s.pod = pod
	s.write(ctx)
	d.met(s.key.Name + " writes again")
}

// stays expects that the same pod goes on writing, under the same epoch.
func (s *subject) stays(ctx context.Context) {
	GinkgoHelper()
	s.writer().more(ctx)
	pod := runs(ctx, s.key)
	Expect(pod.UID).To(Equal(s.pod.UID), "the pod is the same")
	Expect(s.claim(ctx).Status).To(HaveValue(And(
		HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Holder", s.dpu), HaveField("Epoch", int64(1)))))
}

func (s *subject) claim(ctx context.Context) *moorv1alpha1.WriterClaim {
	GinkgoHelper()
	claim := &moorv1alpha1.WriterClaim{}
	dpu, err := dpuClusterOf(ctx, s.volume)
	Expect(err).NotTo(HaveOccurred())
	Expect(dpu.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: s.volume}, claim)).To(Succeed())
	return claim
}

// reaches waits until the claim is in the phase, held by the DPU.
func (s *subject) reaches(ctx context.Context, phase moorv1alpha1.ClaimPhase, dpu string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) *moorv1alpha1.WriterClaimStatus { return s.claim(ctx).Status }).WithContext(ctx).
		WithTimeout(patience).WithPolling(tick / 10).Should(HaveValue(And(HaveField("Phase", phase), HaveField("Holder", dpu))))
}

// receipt is the proof that ended the first epoch.
func (s *subject) receipt(ctx context.Context) moorv1alpha1.ReceiptKind {
	GinkgoHelper()
	receipts := s.claim(ctx).Status.Receipts
	Expect(receipts).NotTo(BeEmpty())
	Expect(receipts[0].Epoch).To(BeEquivalentTo(1))
	return receipts[0].Kind
}

// judge ends the writers and expects that there was one writer at a time, and
// that nothing acknowledged is missing.
func (s *subject) judge(ctx context.Context) {
	GinkgoHelper()
	j := s.journal(ctx)
	if s.logs == nil {
		proven(ctx, s.record, s.volume, j)
	} else {
		found, err := violationsIn(ctx, s.record, s.volume, s.logs(ctx, s), j)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeEmpty())
	}
	GinkgoWriter.Printf("%s: %d lines acknowledged, none lost, by %d writers\n", s.key.Name, len(j.Acknowledged), len(s.writers))
}

// journal ends the writers, and is what they were acknowledged and what is read back.
func (s *subject) journal(ctx context.Context) proof.Journal {
	GinkgoHelper()
	j := proof.Journal{Name: journal}
	for _, w := range s.writers {
		w.stop(ctx)
		j.Acknowledged = append(j.Acknowledged, w.acknowledged()...)
	}
	if s.raw {
		j.Name, j.Read = rawDevice, s.sectors(ctx)
		return j
	}
	j.Read = strings.Fields(sh(ctx, s.key, "cat "+journal))
	return j
}

// told waits until the host's object says why nothing is done, in these words.
func told(ctx context.Context, host, reason, words string) {
	GinkgoHelper()
	Eventually(hostSays).WithContext(ctx).WithArguments(host, moorv1alpha1.ConditionFailover).WithTimeout(patience).WithPolling(tick).
		Should(And(ContainSubstring("/"+reason+": "), ContainSubstring(words)))
}

// hostSays is what a condition of a host's DPUStorageNode says; empty if there is none.
func hostSays(ctx context.Context, host, condition string) (string, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node)
	c := meta.FindStatusCondition(node.Status.Conditions, condition)
	if c == nil {
		return "", err
	}
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message), err
}

// dpuIn is the DPU in a host.
func dpuIn(host string) string { return "dpu-" + strings.TrimPrefix(host, "host-") }

// during does something to a machine or a process, and undoes it when the test
// ends, or when end is called.
func during(ctx context.Context, name string, do, undo func(context.Context, string) error) (end func(context.Context)) {
	GinkgoHelper()
	var once sync.Once
	end = func(ctx context.Context) {
		GinkgoHelper()
		once.Do(func() { Expect(undo(ctx, name)).To(Succeed()) })
	}
	DeferCleanup(end)
	Expect(do(ctx, name)).To(Succeed())
	return end
}

// powerOff powers machines off, and on again when the test ends.
func powerOff(ctx context.Context, machines ...string) {
	GinkgoHelper()
	for _, m := range machines {
		By("powering off " + m)
		DeferCleanup(func(ctx context.Context) { Expect(bed.PowerOn(ctx, m)).To(Succeed()) })
		Expect(bed.PowerOff(ctx, m)).To(Succeed())
	}
}

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// Where the storage that lets clients in by name has its volumes, and its administration.
var (
	shareAddress = net.JoinHostPort(layout.HubIP, "10810")
	shareAdmin   = net.JoinHostPort(layout.HubIP, "10811")
)

// shareServed serves that storage until the test ends. To be called before the namespace is made.
func shareServed(ctx context.Context) {
	GinkgoHelper()
	const name = "share-storage"
	dir := filepath.Join(layout.TargetDir, "share")
	_, err := bed.Exec(ctx, layout.Hub, "mkdir", "-p", filepath.Join(dir, "rights"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(bed.Remove(name)).To(Succeed()) })
	Expect(bed.Start(ctx, devcluster.Process{Name: name, Machine: layout.Hub, Argv: []string{
		filepath.Join(bed.BinDir(), "moor-dev"), devcluster.ShareCommand, "serve", shareAddress, shareAdmin, dir, filepath.Join(layout.TargetDir, "log"),
	}})).To(Succeed())
	Eventually(func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", shareAdmin)
		if err == nil {
			err = c.Close()
		}
		return err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Succeed())
}

// asking asks the administration in a pod.
func asking(what, query string) string {
	return fmt.Sprintf(`wget -q -O- "http://%s/%s?%s"`, shareAdmin, what, query)
}

// Those of a client: the names of its attachment, and of its DPU.
const ofClient = "volume={{ handle }}&node={{ node.metadata.name }}&client={{ attachment.uid }}"

// sharePhase is a pod that runs a command, with the programs of the bed in /moor.
func sharePhase(command string) pavv1alpha1.PodPhase {
	return pavv1alpha1.PodPhase{PodTemplate: asJSON(map[string]any{"spec": map[string]any{
		"terminationGracePeriodSeconds": 1, "hostNetwork": true,
		"containers": []any{map[string]any{
			"name": "job", "image": kit.Image, "command": []any{"sh", "-ec", command}, "securityContext": map[string]any{"privileged": true},
			"volumeMounts": []any{map[string]any{"name": "moor", "mountPath": "/moor"}},
		}},
		"volumes": []any{map[string]any{"name": "moor", "hostPath": map[string]any{"path": bed.BinDir()}}},
	}})}
}

// byName has the pods of a provisioner use the storage; revoke is the command of its revocation pod.
func byName(revoke string) func(*pavv1alpha1.PavProvisioner) {
	return func(p *pavv1alpha1.PavProvisioner) {
		program := "/moor/moor-dev " + devcluster.ShareCommand
		p.Spec.VolumeCreation.PodPhase = sharePhase(asking("create", "volume={{ defaultHandle }}&bytes={{ requestedMinCapacity }}"))
		p.Spec.VolumeDeletion.PodTemplate = sharePhase(asking("delete", "volume={{ defaultHandle }}")).PodTemplate
		p.Spec.VolumeStaging.PodTemplate = sharePhase(asking("admit", ofClient) + `
mkdir -p /run/share
exec ` + program + " show " + shareAddress + " {{ handle }} {{ node.metadata.name }} {{ attachment.uid }} /run/share/fuse /pav/volume /pav/ready").PodTemplate
		p.Spec.VolumeUnstaging.PodTemplate = sharePhase(program + " hide {{ handle }} {{ node.metadata.name }}\n" + asking("leave", ofClient)).PodTemplate
		p.Spec.VolumeRevocation = &pavv1alpha1.VolumeRevocation{PodTemplate: sharePhase(revoke).PodTemplate}
		p.Spec.VolumeValidation = &pavv1alpha1.VolumeValidation{VolumeModes: asJSON([]corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock})}
		p.Annotations = map[string]string{moorv1alpha1.AnnotationConcurrentStaging: "true"}
	}
}

// sharer is a subject on that storage, whose provisioner is returned too.
func (ns *testNamespace) sharer(ctx context.Context, revoke string) (*subject, string) {
	GinkgoHelper()
	provisioner := ns.podVendor(ctx, "share", jobs{create: "true", remove: "true", stage: "true", unstage: "true"}, byName(revoke))
	class := ns.class(ctx, map[string]string{"policy": provisioner, "maxShares": "2", "failover": "Fence"})
	s := ns.newSubject(ctx, class, "host-1")
	s.logs = func(ctx context.Context, s *subject) kit.Logs {
		return kit.Logs{Written: vendorVolume(ctx, s.volume) + ".img", Shown: kit.PodLogs(s.volume).Shown}
	}
	s.begin(ctx)
	return s, provisioner
}

// revocations records where the revocation pods that succeed have run.
func revocations(ctx context.Context) (nodes func() []string) {
	GinkgoHelper()
	watched, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	w, err := clients.DPU.Watch(watched, &corev1.PodList{}, client.HasLabels{moorv1alpha1.LabelPodRevocation})
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	var seen []string
	go func() {
		defer w.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				if pod, ok := e.Object.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodSucceeded {
					mu.Lock()
					seen = append(seen, pod.Spec.NodeName)
					mu.Unlock()
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Compact(slices.Clone(seen))
	}
}

// eventsInDPU are the messages of the events with a reason about VolumeAttachments of the DPU cluster.
func eventsInDPU(ctx context.Context, reason string) ([]string, error) {
	var list corev1.EventList
	err := clients.DPU.List(ctx, &list, client.InNamespace(kit.Namespace))
	var out []string
	for _, e := range list.Items {
		if e.Reason == reason && e.InvolvedObject.Kind == "VolumeAttachment" {
			out = append(out, e.Message)
		}
	}
	return out, err
}

var _ = Describe("a PavProvisioner that revokes", slow, Label("dpu-pods"), func() {
	It("has the storage shut out a DPU that lost power with its host, and the pod writes elsewhere", func(ctx context.Context) {
		shareServed(ctx)
		ns := faulty(ctx)
		s, _ := ns.sharer(ctx, asking("shut", ofClient))
		ran := revocations(ctx)
		d := within(bothDead)
		powerOff(ctx, s.host, s.dpu)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).NotTo(Equal(s.host))
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptStorage))
		Expect(ran()).To(And(HaveLen(1), Not(ContainElement(s.dpu))))
		s.judge(ctx)
	})

	It("has it shut out a DPU that is cut off with its host and goes on writing", func(ctx context.Context) {
		shareServed(ctx)
		ns := faulty(ctx)
		s, _ := ns.sharer(ctx, asking("shut", ofClient))
		d := within(bothDead)
		joinHost := during(ctx, s.host, bed.CutAPI, bed.JoinAPI)
		joinDPU := during(ctx, s.dpu, bed.CutAPI, bed.JoinAPI)
		s.writer().more(ctx)
		s.writer().ends(ctx)
		s.again(ctx, d)
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptStorage))
		joinDPU(ctx)
		joinHost(ctx)
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		s.writer().more(ctx)
		s.judge(ctx)
	})

	It("frees nothing by a pod that fails, says so in words, and does once it is mended", func(ctx context.Context) {
		shareServed(ctx)
		ns := faulty(ctx)
		s, provisioner := ns.sharer(ctx, "echo the array does not answer; exit 3")
		powerOff(ctx, s.host, s.dpu)
		Eventually(hostSays).WithContext(ctx).WithArguments(s.host, moorv1alpha1.ConditionFailover).WithTimeout(patience).WithPolling(tick).
			Should(And(ContainSubstring("revocation pod"), ContainSubstring("kubectl annotate podrevocation")))
		Eventually(eventsInDPU).WithContext(ctx).WithArguments("RevocationFailed").WithTimeout(patience).WithPolling(tick).
			Should(ContainElement(And(ContainSubstring("gives no receipt"), ContainSubstring("exit code 3"))))
		Consistently(func(ctx context.Context) *moorv1alpha1.WriterClaimStatus { return s.claim(ctx).Status }).WithContext(ctx).WithTimeout(2 * calm).WithPolling(tick).
			Should(HaveValue(And(HaveField("Phase", moorv1alpha1.ClaimFencing), HaveField("Holder", s.dpu), HaveField("Receipts", BeEmpty()))))
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns.name, Name: "data-" + s.key.Name}}
		volumeOf(ctx, pvc)
		Eventually(events).WithContext(ctx).WithArguments(pvc, storagev1alpha1.EventFailoverHeld).WithTimeout(patience).WithPolling(tick).
			Should(ContainElement(ContainSubstring("revocation pod")))

		By("mending the template, and having it tried again")
		p := &pavv1alpha1.PavProvisioner{}
		Expect(clients.DPU.Get(ctx, client.ObjectKey{Name: provisioner}, p)).To(Succeed())
		mended := client.MergeFrom(p.DeepCopy())
		p.Spec.VolumeRevocation.PodTemplate = sharePhase(asking("shut", ofClient)).PodTemplate
		Expect(clients.DPU.Patch(ctx, p, mended)).To(Succeed())
		var all moorv1alpha1.PodRevocationList
		Expect(clients.DPU.List(ctx, &all)).To(Succeed())
		Expect(all.Items).To(HaveLen(1))
		Expect(clients.DPU.Patch(ctx, &all.Items[0], client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"storage.moor.dev/retry": "1"}}}`)))).To(Succeed())
		s.again(ctx, within(bothDead))
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptStorage))
		s.judge(ctx)
	})

	It("has a block volume whose staging pod died on the DPU staged anew, and the pod goes on with it", func(ctx context.Context) {
		shareServed(ctx)
		ns := faulty(ctx)
		s, provisioner := ns.sharer(ctx, asking("shut", ofClient))
		stagings, err := stagedOn(ctx, provisioner)
		Expect(err).NotTo(HaveOccurred())
		at := slices.IndexFunc(stagings, func(p moorv1alpha1.PodStaging) bool { return p.Spec.NodeName == s.dpu })
		Expect(at).NotTo(Equal(-1))
		was := stagings[at].Status
		d := within(bothDead)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: was.Pod.Namespace, Name: was.Pod.Name}}
		Expect(clients.DPU.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		s.writer().ends(ctx)
		Eventually(events).WithContext(ctx).WithArguments(s.pod.DeepCopy(), storagev1alpha1.EventMountDead).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		s.again(ctx, d)
		Eventually(stagedOn).WithContext(ctx).WithArguments(provisioner).WithTimeout(patience).WithPolling(tick).
			Should(HaveEach(And(HaveField("Status.Phase", moorv1alpha1.PodStagingStaged), HaveField("Status.Report.PodUID", Not(Equal(was.Report.PodUID))))))
		s.judge(ctx)
	})
})

//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// podVendor has a provisioner of the DPU cluster behind a vendor and a policy of its name, which go with
// the test, and returns that.
func (ns *testNamespace) podVendor(ctx context.Context, name string, j jobs, change ...func(*pavv1alpha1.PavProvisioner)) string {
	GinkgoHelper()
	if !bed.Options().DPUPods {
		Skip("the DPUs of this bed run no pods: bring it up with --dpu-pods")
	}
	name = ns.provisionerIn(ctx, clients.DPU, name, j, change...)
	about := metav1.ObjectMeta{Namespace: kit.Namespace, Name: name}
	vendor := &storagev1alpha1.DPUStorageVendor{ObjectMeta: about, Spec: storagev1alpha1.DPUStorageVendorSpec{StorageClassName: name, PluginName: "pav"}}
	policy := &storagev1alpha1.DPUStoragePolicy{ObjectMeta: about, Spec: storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: []string{name}}}
	for _, o := range []client.Object{vendor, policy} {
		Expect(clients.Host.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { remove(ctx, o) }, NodeTimeout(patience))
	}
	return name
}

// stagedOn are the PodStagings on the DPUs, by the provisioner.
func stagedOn(ctx context.Context, provisioner string) ([]moorv1alpha1.PodStaging, error) {
	var list moorv1alpha1.PodStagingList
	err := clients.DPU.List(ctx, &list, client.MatchingFields{"spec.provisionerName": provisioner})
	return list.Items, err
}

// The commands of a provisioner whose volumes are files in the directory that all DPUs have: each is a loop
// device where it is staged.
var loops = jobs{
	create: "truncate -s {{ requestedMinCapacity }} /store/pav-{{ defaultHandle }}",
	remove: "rm /store/pav-{{ defaultHandle }}",
	stage: `for try in 1 2 3 4 5; do
  d=$(losetup -f); n=${d#/dev/loop}; [ -b $d ] || mknod $d b 7 $n
  losetup $d /store/pav-{{ handle }} && mknod /pav/volume b 7 $n && exit 0
done; exit 1`,
	unstage: "losetup -d /dev/loop$((0x$(stat -c %T /pav/volume)))",
}

// atStore gives all pods of a provisioner the directory that all DPUs have, as /store, and the devices of
// the node.
func atStore(p *pavv1alpha1.PavProvisioner) {
	store := func(command string) pavv1alpha1.PodPhase {
		return pavv1alpha1.PodPhase{PodTemplate: asJSON(map[string]any{"spec": map[string]any{
			"terminationGracePeriodSeconds": 1,
			"containers": []any{map[string]any{
				"name": "job", "image": kit.Image, "command": []any{"sh", "-ec", command}, "securityContext": map[string]any{"privileged": true},
				"volumeMounts": []any{map[string]any{"name": "store", "mountPath": "/store"}},
			}},
			"volumes": []any{map[string]any{"name": "store", "hostPath": map[string]any{"path": layout.TargetDir}}},
		}})}
	}
	p.Spec.VolumeCreation.PodPhase = store(loops.create)
	p.Spec.VolumeDeletion.PodTemplate = store(loops.remove).PodTemplate
	p.Spec.VolumeStaging.PodTemplate = store(loops.stage).PodTemplate
	p.Spec.VolumeUnstaging.PodTemplate = store(loops.unstage).PodTemplate
	p.Spec.VolumeValidation = &pavv1alpha1.VolumeValidation{VolumeModes: asJSON([]corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock})}
	p.Annotations = map[string]string{moorv1alpha1.AnnotationConcurrentStaging: "true"}
}

var _ = Describe("a PavProvisioner behind DPUs", Label("dpu-pods"), func() {
	It("shows a directory that a pod made on the DPU by virtio-fs, and makes it anew when that pod is gone", func(ctx context.Context) {
		ns := newNamespace(ctx)
		policy := ns.podVendor(ctx, "directory", jobs{stage: "mkdir /pav/volume; echo of $HOSTNAME >/pav/volume/greeting; touch /pav/ready; sleep 1000000"})
		files := ns.claim(ctx, claim{name: "files", class: ns.class(ctx, map[string]string{"policy": policy, "emulation": "virtiofs"})})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		greeting := sh(ctx, pod, "cat /data-files/greeting")
		sh(ctx, pod, "echo from the host >/data-files/answer && sync")
		stagings, err := stagedOn(ctx, policy)
		Expect(err).NotTo(HaveOccurred())
		Expect(stagings).To(HaveLen(1))
		Expect(stagings[0].Spec).To(And(HaveField("NodeName", "dpu-1"), HaveField("User.Kind", moorv1alpha1.AttachmentUser)))

		By("deleting the staging pod")
		helper := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: stagings[0].Status.Pod.Namespace, Name: stagings[0].Status.Pod.Name}}
		Expect(clients.DPU.Delete(ctx, helper, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(stagedOn).WithContext(ctx).WithArguments(policy).WithTimeout(patience).WithPolling(tick).Should(ConsistOf(And(
			HaveField("Status.Phase", moorv1alpha1.PodStagingStaged), HaveField("Status.Report.PodUID", Not(Equal(stagings[0].Status.Report.PodUID))),
		)))
		held := attachment(ctx, "host-1", volumeOf(ctx, files))
		remove(ctx, podObject(pod))
		gone(ctx, held) // what is still attached shows what the dead pod had
		again := ns.pod(ctx, "again", "host-1", files)
		runs(ctx, again)
		Expect(sh(ctx, again, "cat /data-files/greeting")).To(And(HavePrefix("of pav-volume-staging-pod-"), Not(Equal(greeting))))
		Expect(sh(ctx, again, "ls /data-files")).To(Equal("greeting\n"), "not what was in the directory of the pod that is gone")
	})

	It("shows a block device that pods made on two DPUs, and a pod fails over with it and loses nothing", func(ctx context.Context) {
		ns := faulty(ctx)
		policy := ns.podVendor(ctx, "loop", loops, atStore)
		class := ns.class(ctx, map[string]string{"policy": policy, "maxShares": "2", "failover": "Fence"})
		s := ns.newSubject(ctx, class, "host-1")
		s.logs = func(_ context.Context, s *subject) kit.Logs { return kit.PodLogs(s.volume) }
		s.begin(ctx)
		Expect(stagedOn(ctx, policy)).To(HaveLen(2))
		d := within(hostDead)
		powerOff(ctx, s.host)
		s.again(ctx, d)
		Expect(s.pod.Spec.NodeName).To(Equal(s.replica))
		Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptDPU))
		Expect(attachment(ctx, s.replica, s.volume).Status.Epoch).To(BeNumerically(">", 1))
		s.judge(ctx)
	})
})

//go:build e2e

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// cordon says whether pods may be put on a host.
func cordon(ctx context.Context, host string, closed bool) {
	GinkgoHelper()
	Expect(kit.Cordon(ctx, clients.Host, host, closed)).To(Succeed())
}

// drain cordons a host and evicts a pod from it, as `kubectl drain` does; the
// host is opened again when the test ends.
func drain(ctx context.Context, host string, pod *corev1.Pod) {
	GinkgoHelper()
	cordon(ctx, host, true)
	DeferCleanup(func(ctx context.Context) { cordon(ctx, host, false) })
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	Expect(clients.Host.SubResource("eviction").Create(ctx, pod, eviction)).To(Succeed())
}

// reasonsOf are the reasons of the events about an object.
func reasonsOf(namespace, kind, name string, uid ...string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var events corev1.EventList
		if err := clients.Host.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		var out []string
		for i := range events.Items {
			o := events.Items[i].InvolvedObject
			if o.Kind == kind && o.Name == name && (len(uid) == 0 || uid[0] == string(o.UID)) {
				out = append(out, events.Items[i].Reason)
			}
		}
		return out, nil
	}
}

// described is what `kubectl describe` says of a DPUVolume.
func described(ctx context.Context, volume string) string {
	kubectl := exec.CommandContext(ctx, filepath.Join(bed.KubeBinDir(), "kubectl"), "--kubeconfig", bed.Kubeconfig(devcluster.HostCluster),
		"describe", "-n", kit.Namespace, "dpuvolumes.storage.dpu.nvidia.com", volume)
	out, err := kubectl.CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// replicasOf lists the replicas of a volume, by node.
func replicasOf(volume string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var list storagev1alpha1.DPUVolumeAttachmentList
		if err := clients.Host.List(ctx, &list, client.InNamespace(kit.Namespace)); err != nil {
			return nil, err
		}
		var out []string
		for i := range list.Items {
			if a := &list.Items[i]; a.Spec.DPUVolumeName == volume && a.Spec.Role == storagev1alpha1.RoleReplica {
				out = append(out, a.Spec.DPUNodeName)
			}
		}
		return out, nil
	}
}

var _ = Describe("replicas", func() {
	It("carry a drained pod, are promoted, and go when the last primary is gone", bothModes, func(ctx context.Context) {
		const outlive = 8 * time.Second
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "maxShares": "2", "replicaReleaseAfter": outlive.String()})
		pod := ns.moored(ctx, class)
		first := runs(ctx, pod)
		old := first.Spec.NodeName
		data := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-moored-0", Namespace: ns.name}}
		volume := volumeOf(ctx, data)
		record := recorded(ctx, volume)
		Eventually(replicaOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).ShouldNot(BeEmpty())
		warm, err := replicaOf(volume)(ctx)
		Expect(err).NotTo(HaveOccurred())
		replica := attachment(ctx, warm, volume)
		sh(ctx, pod, "echo before | dd of=/data/journal conv=fsync 2>/dev/null")

		By("draining " + old)
		d := within(hostDead)
		drain(ctx, old, first)
		second, err := kit.AwaitRunning(ctx, clients.Host, pod, string(first.UID), patience)
		Expect(err).NotTo(HaveOccurred())
		d.met("the new pod runs")
		Expect(second.Spec.NodeName).To(Equal(warm), "it runs where the replica was")
		Expect(sh(ctx, pod, "cat /data/journal")).To(Equal("before\n"))
		now := attachment(ctx, warm, volume)
		Expect(now.UID).To(Equal(replica.UID), "the replica was promoted, not made anew")
		Expect(now.Spec.Role).To(Equal(storagev1alpha1.RolePrimary))
		Expect(now.Status.Warmth).To(Equal(storagev1alpha1.WarmthAttached))
		Expect(now.Status.DPU.PCIAddress).To(Equal(replica.Status.DPU.PCIAddress), "the function made ready is the one that is used")

		for kind, told := range map[string]func(context.Context) ([]string, error){
			"volume": reasonsOf(kit.Namespace, "DPUVolume", volume),
			"claim":  reasonsOf(ns.name, "PersistentVolumeClaim", data.Name),
			"pod":    reasonsOf(ns.name, "Pod", pod.Name, string(second.UID)),
		} {
			Eventually(told).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(
				And(ContainElement(storagev1alpha1.EventPromoted), ContainElement(storagev1alpha1.EventAttached)), kind)
		}
		GinkgoWriter.Println(described(ctx, volume))
		Expect(eventsOf(kit.Namespace, volume)(ctx)).To(ContainSubstring("from its replica, which was PreEmulated"))
		proven(ctx, record, volume)

		By("deleting the pod for good")
		Eventually(replicasOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveLen(1), "a new replica elsewhere")
		ns.scale(ctx, "moored", 0)
		gone(ctx, podObject(pod))
		v := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: volume}}
		Eventually(func(ctx context.Context) (*storagev1alpha1.ReplicaState, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(v), v)
			return v.Status.Replicas, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveField("PrimaryGoneSince", Not(BeNil())))
		since := v.Status.Replicas.PrimaryGoneSince.Time
		Eventually(replicasOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		Expect(time.Now()).To(BeTemporally(">=", since.Add(outlive)), "not before its time")
	})

	It("of volumes that several hosts may have are seen by their hosts before a pod comes", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "maxShares": "2", "maxMountReplicaCount": "1", "replicaWarmth": "Attached"})
		shared := ns.claim(ctx, claim{name: "shared", class: class, mode: corev1.PersistentVolumeBlock, access: corev1.ReadWriteMany, size: "32Mi"})
		first := ns.pod(ctx, "first", "", shared)
		runs(ctx, first)
		volume := volumeOf(ctx, shared)
		var replica storagev1alpha1.DPUVolumeAttachment
		Eventually(func(ctx context.Context) (storagev1alpha1.Warmth, error) {
			nodes, err := replicasOf(volume)(ctx)
			if err != nil || len(nodes) == 0 {
				return "", err
			}
			replica = *attachment(ctx, nodes[0], volume)
			return replica.Status.Warmth, nil
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(storagev1alpha1.WarmthAttached))
		warm := replica.Spec.DPUNodeName
		Expect(replica.Status.Epoch).To(BeZero(), "many writers have no claim")
		Eventually(func() (string, error) { return hostDisks(warm) }).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(replica.Status.DPU.NVMeAttrs.NamespaceUUID), "the host sees it, and no pod is there")

		sh(ctx, first, "echo shared | dd of=/dev/shared bs=4096 conv=sync,fsync 2>/dev/null")
		second := ns.pod(ctx, "second", warm, shared)
		runs(ctx, second)
		Expect(sh(ctx, second, "head -n 1 /dev/shared")).To(Equal("shared\n"))
		now := attachment(ctx, warm, volume)
		Expect(now.UID).To(Equal(replica.UID))
		Expect(now.Spec.Role).To(Equal(storagev1alpha1.RolePrimary))
	})

	It("of a single writer are refused as Attached, in words", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "maxShares": "2", "replicaWarmth": "Attached"})
		c := ns.claim(ctx, claim{name: "data", class: class})
		Eventually(eventsOf(ns.name, c.Name)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(
			ContainSubstring("must stay hidden from its host until it is promoted"))
	})
})

// hostDisks lists the NVMe namespaces that a host sees, by their UUIDs.
func hostDisks(host string) (string, error) {
	find, err := bed.Command(host, nil, "find", filepath.Join(layout.PCIeDir, "sys"), "-name", "uuid", "-exec", "cat", "{}", "+")
	if err != nil {
		return "", err
	}
	out, err := find.Output()
	return string(out), err
}

// scale sets how many pods a StatefulSet of the namespace has.
func (ns *testNamespace) scale(ctx context.Context, name string, pods int32) {
	GinkgoHelper()
	set := &appsv1.StatefulSet{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: ns.name, Name: name}, set)).To(Succeed())
	before := set.DeepCopy()
	set.Spec.Replicas = &pods
	Expect(clients.Host.Patch(ctx, set, client.MergeFrom(before))).To(Succeed())
}

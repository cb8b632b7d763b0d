//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// moved puts a host at another place, until the test ends. There is storage at the
// places that kit names, and nowhere else.
func moved(ctx context.Context, host, to string) {
	GinkgoHelper()
	move := func(ctx context.Context, to string) {
		GinkgoHelper()
		Expect(kit.MoveHost(ctx, bed, clients, host, to)).To(Succeed())
	}
	DeferCleanup(func(ctx context.Context) { move(ctx, kit.PlaceShared) })
	move(ctx, to)
}

// placed skips a test where the vendor's storage is at no place.
func placed() {
	GinkgoHelper()
	if !bed.Options().Topology {
		Skip("the storage of this bed is reached from everywhere: bring it up with --topology")
	}
}

// at is what a StorageClass says that allows one place.
func at(place string) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{
		MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: kit.PlaceKey, Values: []string{place}}},
	}
}

// reachedAt expects that Kubernetes was told that a volume is reached from a place,
// and from there alone.
func reachedAt(ctx context.Context, volume, place string) {
	GinkgoHelper()
	pv := &corev1.PersistentVolume{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: volume}, pv)).To(Succeed())
	Expect(pv.Spec.NodeAffinity).NotTo(BeNil())
	Expect(pv.Spec.NodeAffinity.Required.NodeSelectorTerms).To(ConsistOf(HaveField("MatchExpressions", ConsistOf(
		corev1.NodeSelectorRequirement{Key: kit.PlaceKey, Operator: corev1.NodeSelectorOpIn, Values: []string{place}}))))
}

// lateClass is a StorageClass whose volumes are made once a host is chosen, of
// those that it allows, with as many replicas as there are other hosts.
func (ns *testNamespace) lateClass(ctx context.Context, name string, allowed ...corev1.TopologySelectorTerm) string {
	GinkgoHelper()
	return ns.lateClassWith(ctx, name, map[string]string{"maxShares": "3", "maxMountReplicaCount": "2", "failover": "Off"}, allowed...)
}

// lateClassWith is lateClass with other parameters beside the policy.
func (ns *testNamespace) lateClassWith(ctx context.Context, name string, parameters map[string]string, allowed ...corev1.TopologySelectorTerm) string {
	GinkgoHelper()
	parameters["policy"] = "local"
	o := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: ns.name + "-" + name}, Provisioner: "csi.snap.nvidia.com", AllowedTopologies: allowed,
		Parameters:        parameters,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	Expect(clients.Host.Create(ctx, o)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { _ = clients.Host.Delete(ctx, o) })
	return o.Name
}

// unscheduled waits until the scheduler says of a pod, in these words, why it is
// put nowhere.
func unscheduled(ctx context.Context, key client.ObjectKey, words string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (string, error) {
		pod := &corev1.Pod{}
		if err := clients.Host.Get(ctx, key, pod); err != nil {
			return "", err
		}
		Expect(pod.Spec.NodeName).To(BeEmpty())
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return c.Message, nil
			}
		}
		return "", nil
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(words))
}

var _ = Describe("storage that one DPU does not reach", Label("topology"), func() {
	It("is used where it is reached alone, by pods and by replicas", func(ctx context.Context) {
		placed()
		ns := newNamespace(ctx)
		moved(ctx, "host-3", "apart")

		By("making a volume for the host of a pod")
		near := ns.lateClass(ctx, "near", at(kit.PlaceShared))
		c := ns.claim(ctx, claim{name: "data", class: near})
		pod := ns.pod(ctx, "pod", "", c)
		host := runs(ctx, pod).Spec.NodeName
		Expect(host).To(BeElementOf("host-1", "host-2"))
		other := map[string]string{"host-1": "host-2", "host-2": "host-1"}[host]
		volume := volumeOf(ctx, c)
		reachedAt(ctx, volume, kit.PlaceShared)

		By("keeping a replica where it is reached, and saying where it is not")
		Eventually(func(ctx context.Context) (string, error) {
			v := &storagev1alpha1.DPUVolume{}
			if err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, v); err != nil || v.Status.Replicas == nil {
				return "", err
			}
			return v.Status.Replicas.Message, nil
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("node host-3: its DPU does not reach the volume"))
		Eventually(replicasOf(volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ConsistOf(other))

		By("putting no pod where it is not reached")
		remove(ctx, podObject(pod))
		stray := ns.pod(ctx, "stray", "host-3", c)
		unscheduled(ctx, stray, "didn't match PersistentVolume's node affinity")
		remove(ctx, podObject(stray))
		runs(ctx, ns.pod(ctx, "moved", other, c))

		By("making none for a host that does not reach it")
		far := ns.claim(ctx, claim{name: "far", class: ns.lateClass(ctx, "any")})
		lost := ns.pod(ctx, "lost", "host-3", far)
		Eventually(eventsOf(ns.name, "far")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(
			ContainSubstring("is reached from none of the places asked for"))
		remove(ctx, podObject(lost))
	})
})

var _ = Describe("storage at two places", Label("topology"), func() {
	It("has each volume at the one where it is allowed, for the hosts there", func(ctx context.Context) {
		placed()
		moved(ctx, "host-3", kit.PlaceAnnex) // first, so that it moves back last, without a volume
		ns := newNamespace(ctx)
		for place, hosts := range map[string][]string{kit.PlaceShared: {"host-1", "host-2"}, kit.PlaceAnnex: {"host-3"}} {
			By("making a volume at " + place)
			c := ns.claim(ctx, claim{name: place, class: ns.lateClass(ctx, place, at(place))})
			Expect(runs(ctx, ns.pod(ctx, "at-"+place, "", c)).Spec.NodeName).To(BeElementOf(hosts))
			reachedAt(ctx, volumeOf(ctx, c), place)
		}
		By("telling the capacity of both")
		Eventually(capacityAt).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(And(
			HaveKeyWithValue(kit.PlaceShared, BeNumerically(">", 0)), HaveKeyWithValue(kit.PlaceAnnex, BeNumerically(">", 0))))
	})
})

// capacityAt is the capacity of the policy's vendors in bytes, by place.
func capacityAt(ctx context.Context) (map[string]int64, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: "local"}, policy)
	if err != nil || policy.Status.Capacity == nil {
		return nil, err
	}
	out := map[string]int64{}
	for i := range policy.Status.Capacity.Places {
		p := &policy.Status.Capacity.Places[i]
		out[p.Topology[kit.PlaceKey]] = p.Available.Value()
	}
	return out, nil
}

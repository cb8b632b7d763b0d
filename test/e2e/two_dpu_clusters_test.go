//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/moor"
	"github.com/moor-storage/moor/test/kit"
)

// dpuClusterOf is the client of the DPU cluster in which a volume is.
func dpuClusterOf(ctx context.Context, volume string) (client.WithWatch, error) {
	if !bed.Options().TwoDPUClusters {
		return clients.DPU, nil
	}
	where, err := recordedIn(ctx, volume)
	if err != nil {
		return nil, err
	}
	for _, of := range bed.DPUClusters() {
		if moor.DPUClusterName(of.Cluster) == where {
			return clients.In(of.Cluster), nil
		}
	}
	return nil, fmt.Errorf("volume %s is in DPU cluster %q, which the bed has not", volume, where)
}

// recordedIn is the DPU cluster in which a volume is, as the volume says it.
func recordedIn(ctx context.Context, volume string) (string, error) {
	v := &storagev1alpha1.DPUVolume{}
	err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: volume}, v)
	if err != nil || v.Status.State == nil || v.Status.State.DPUCluster == nil {
		return "", err
	}
	return v.Status.State.DPUCluster.Namespace + "/" + v.Status.State.DPUCluster.Name, nil
}

// hostsOf are the hosts whose DPUs are in a DPU cluster.
func hostsOf(of devcluster.DPUGroup) []string {
	var out []string
	for i, dpu := range bed.DPUs() {
		if slices.Contains(of.DPUs, dpu) {
			out = append(out, bed.Nodes()[i])
		}
	}
	return out
}

// twoDPUClusters skips a test on a bed with one, and else has the policy be usable in both.
func twoDPUClusters(ctx context.Context) []devcluster.DPUGroup {
	GinkgoHelper()
	if !bed.Options().TwoDPUClusters {
		Skip("this bed has one DPU cluster: bring it up with --two-dpu-clusters")
	}
	usableIn(ctx, bed.DPUClusters()...)
	return bed.DPUClusters()
}

// usableIn waits until the policy is in these DPU clusters.
func usableIn(ctx context.Context, groups ...devcluster.DPUGroup) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) ([]string, error) {
		policy := policyNamed("local")
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(policy), policy)
		var not []string
		for _, of := range groups {
			if !meta.IsStatusConditionTrue(policy.Status.Conditions, storagev1alpha1.ConditionValid+"."+labelOf(of)) {
				not = append(not, of.Cluster)
			}
		}
		return not, err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty(), "the policy cannot be used there")
}

// labelOf is a DPU cluster as a label value.
func labelOf(of devcluster.DPUGroup) string {
	return strings.ReplaceAll(moor.DPUClusterName(of.Cluster), "/", ".")
}

// fencingClass is a StorageClass of volumes that are made where the host of the pod reaches them, and fail over.
func (ns *testNamespace) fencingClass(ctx context.Context) string {
	GinkgoHelper()
	return ns.lateClassWith(ctx, "fencing", map[string]string{"maxShares": "2", "failover": "Fence", "csi.storage.k8s.io/fstype": "ext4"})
}

// ofEach makes a subject that writes on the first host of each DPU cluster.
func (ns *testNamespace) ofEach(ctx context.Context, groups []devcluster.DPUGroup) []*subject {
	GinkgoHelper()
	class := ns.fencingClass(ctx)
	var out []*subject
	for _, of := range groups {
		out = append(out, ns.newSubject(ctx, class, hostsOf(of)[0]))
	}
	for i, of := range groups {
		out[i].begin(ctx)
		Expect(recordedIn(ctx, out[i].volume)).To(Equal(moor.DPUClusterName(of.Cluster)))
		Expect(hostsOf(of)).To(ContainElement(out[i].replica), "its replica is where it is reached")
	}
	return out
}

var _ = Describe("two DPU clusters", Label("two-dpu-clusters"), func() {
	It("have the volumes of their own hosts alone", func(ctx context.Context) {
		groups := twoDPUClusters(ctx)
		ns := newNamespace(ctx)
		class := ns.lateClass(ctx, "near")
		for i, of := range groups {
			host := hostsOf(of)[1]
			By("making a volume for a pod on " + host)
			c := ns.claim(ctx, claim{name: of.Cluster, class: class})
			pod := ns.pod(ctx, "on-"+of.Cluster, host, c)
			Expect(runs(ctx, pod).Spec.NodeName).To(Equal(host))
			Expect(sh(ctx, pod, "echo %[1]s > /data-%[1]s/who && sync && cat /data-%[1]s/who", of.Cluster)).To(Equal(of.Cluster + "\n"))
			volume := volumeOf(ctx, c)
			Expect(recordedIn(ctx, volume)).To(Equal(moor.DPUClusterName(of.Cluster)))
			Expect(attachment(ctx, host, volume).Status.DPUCluster).To(Equal(moor.DPUClusterName(of.Cluster)))
			pv := &corev1.PersistentVolume{}
			Expect(clients.Host.Get(ctx, client.ObjectKey{Name: volume}, pv)).To(Succeed())
			Expect(pv.Spec.NodeAffinity).NotTo(BeNil())
			Expect(pv.Spec.NodeAffinity.Required.NodeSelectorTerms).To(HaveEach(HaveField("MatchExpressions", ContainElement(
				corev1.NodeSelectorRequirement{Key: moorv1alpha1.TopologyDPUCluster, Operator: corev1.NodeSelectorOpIn, Values: []string{labelOf(of)}}))))
			other := groups[1-i].Cluster
			in := func(cluster string) kit.Inventory {
				found, err := kit.InDPUCluster(ctx, cluster, clients.In(cluster))
				Expect(err).NotTo(HaveOccurred())
				return found
			}
			Expect(in(of.Cluster)).To(ContainElement(HaveSuffix("VolumeList " + volume)))
			Expect(in(other)).NotTo(ContainElement(ContainSubstring(volume)))
		}
		By("putting no pod on a host of the other one")
		first := &corev1.PersistentVolumeClaim{}
		Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: ns.name, Name: groups[0].Cluster}, first)).To(Succeed())
		unscheduled(ctx, ns.pod(ctx, "stray", hostsOf(groups[1])[0], first), "didn't match PersistentVolume's node affinity")
	})

	It("fail over within themselves, and the other one is not disturbed", func(ctx context.Context) {
		groups := twoDPUClusters(ctx)
		ns := faulty(ctx)
		all := ns.ofEach(ctx, groups)
		for i, s := range all {
			other := all[1-i]
			began, wrote := other.pod.UID, other.writer().count()
			By("powering off " + s.host)
			d := within(hostDead)
			Expect(bed.PowerOff(ctx, s.host)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(bed.PowerOn(ctx, s.host)).To(Succeed()) })
			s.again(ctx, d)
			Expect(s.pod.Spec.NodeName).To(Equal(s.replica), "the other host of its DPU cluster")
			Expect(runs(ctx, other.key).UID).To(Equal(began))
			Expect(other.writer().done).NotTo(BeClosed())
			Expect(other.writer().count()).To(BeNumerically(">", wrote))
			Expect(bed.PowerOn(ctx, s.host)).To(Succeed())
			Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		}
		for _, s := range all {
			s.writer().more(ctx)
			s.judge(ctx)
		}
	})

	It("serve hosts that hold no account, each those of its own DPUs", func(ctx context.Context) {
		groups := twoDPUClusters(ctx)
		ns := newNamespace(ctx)
		hosts := hostsOf(groups[1])
		distrust(ctx, hosts)
		volume := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Name: ns.name, Namespace: kit.Namespace}}
		volume.Spec = storagev1alpha1.DPUVolumeSpec{
			DPUStoragePolicyName: "local", VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			AccessModes:    []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:      corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
			AccessibleFrom: []map[string]string{{moorv1alpha1.TopologyDPUCluster: labelOf(groups[1])}},
		}
		Expect(clients.Host.Create(ctx, volume)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { remove(ctx, volume) }, NodeTimeout(patience))
		attached := func(host string) *storagev1alpha1.DPUVolumeAttachment {
			o := byHand(ns.name+"-"+host, host, ns.name)
			Expect(clients.Host.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { remove(ctx, o) }, NodeTimeout(patience))
			return o
		}
		By("refusing one to a host of the other DPU cluster")
		stray := attached(hostsOf(groups[0])[1])
		Eventually(messageOf(stray)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(moor.DPUClusterName(groups[1].Cluster)))
		remove(ctx, stray)
		By("handing the volume from one to the other")
		first := attached(hosts[0])
		inside(ctx, hosts[0], moorHost("mount", "uuid="+showsUUID(ctx, first), mountpoint)...)
		inside(ctx, hosts[0], "sh", "-c", "echo acknowledged | dd of="+mountpoint+"/text conv=fsync")
		Expect(recordedIn(ctx, ns.name)).To(Equal(moor.DPUClusterName(groups[1].Cluster)))
		inside(ctx, hosts[0], moorHost("umount", mountpoint)...)
		remove(ctx, first)
		second := attached(hosts[1])
		inside(ctx, hosts[1], moorHost("mount", "uuid="+showsUUID(ctx, second), mountpoint)...)
		Expect(inside(ctx, hosts[1], "cat", mountpoint+"/text")).To(Equal("acknowledged\n"))
		inside(ctx, hosts[1], moorHost("umount", mountpoint)...)
	})

	DescribeTable("go on while the API server of the other one is away, and that one's pods write on", func(ctx context.Context, index int) {
		groups := twoDPUClusters(ctx)
		away, lives := groups[index], groups[1-index]
		ns := faulty(ctx)
		all := ns.ofEach(ctx, groups)
		class := ns.lateClass(ctx, "near")
		By("stopping the API server of " + away.Cluster)
		until := time.Now().Add(outageOfOne)
		resume := during(ctx, away.Cluster+"-apiserver", bed.Pause, bed.Resume)
		for _, host := range hostsOf(lives) {
			c := ns.claim(ctx, claim{name: "meanwhile-" + host, class: class})
			runs(ctx, ns.pod(ctx, "meanwhile-on-"+host, host, c))
			Expect(recordedIn(ctx, volumeOf(ctx, c))).To(Equal(moor.DPUClusterName(lives.Cluster)))
		}
		for _, s := range all {
			s.writer().more(ctx)
		}
		Consistently(func(g Gomega) {
			for _, s := range all {
				g.Expect(s.writer().done).NotTo(BeClosed(), s.key.Name)
			}
		}).WithContext(ctx).WithTimeout(max(time.Until(until), calm)).WithPolling(tick).Should(Succeed())
		By("letting it go on")
		resume(ctx)
		c := ns.claim(ctx, claim{name: "later", class: class})
		runs(ctx, ns.pod(ctx, "later", hostsOf(away)[1], c))
		Expect(recordedIn(ctx, volumeOf(ctx, c))).To(Equal(moor.DPUClusterName(away.Cluster)))
		Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		for _, s := range all {
			s.stays(ctx)
			s.judge(ctx)
		}
	},
		Entry("the first", 0),
		Entry("the second", 1),
	)
})

// outageOfOne is how long an API server is away: longer than a heartbeat, a lease or a tick of anything may be.
const outageOfOne = time.Minute

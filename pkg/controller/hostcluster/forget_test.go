package hostcluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// forget has the host cluster forget DPU cluster dpf/west.
func (s *several) forget() ([]string, error) {
	c := kube.Cluster{Client: s.host.Client, Live: s.host.Live}
	return hostcluster.Clusters{Host: c, Namespace: kubetest.HostNamespace, DPUCluster: "dpf/west"}.Forget(s.t.Context())
}

// free has the policy of a DPU cluster tell of room there.
func (s *several) free(l *life) {
	kubetest.Change(l.DPU, &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("policy")}, func(p *storagev1alpha1.StoragePolicy) {
		p.Status.State, p.Status.Capacity = storagev1alpha1.StoragePolicyValid, &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("1Gi")}
	})
}

// TestForget: what a DPU cluster that is gone for good has left goes, and what the other one has stays.
func TestForget(t *testing.T) {
	s := openSeveral(t)
	s.free(s.east)
	s.free(s.west)
	s.settle()
	s.away[s.west] = true
	s.host.Remove(kubetest.DPUStorageNode("b"))
	const third = "Valid.other.dpf.west" // DPU cluster dpf.west of namespace other
	kubetest.Change(s.host, kubetest.DPUStorageVendor("vendor"), func(v *storagev1alpha1.DPUStorageVendor) {
		v.Status.Conditions = append(v.Status.Conditions, metav1.Condition{Type: third, Status: metav1.ConditionTrue})
	})
	got, err := s.forget()
	if d := cmp.Diff([]string{"dpustoragepolicy policy", "dpustoragevendor vendor"}, got); d != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, d)
	}
	s.settle()
	v, _ := kubetest.Read(s.host, kubetest.DPUStorageVendor("vendor"))
	p, _ := kubetest.Read(s.host, kubetest.DPUStoragePolicy("policy"))
	for _, o := range []client.Object{v, p} {
		if got := o.GetFinalizers(); len(got) != 1 || !strings.HasSuffix(got[0], "dpf.east") {
			t.Errorf("%s has finalizers %q", o.GetName(), got)
		}
	}
	if !meta.IsStatusConditionTrue(v.Status.Conditions, third) {
		t.Error("what a DPU cluster said whose name ends so is gone")
	}
	meta.RemoveStatusCondition(&v.Status.Conditions, third)
	for _, conditions := range [][]metav1.Condition{v.Status.Conditions, p.Status.Conditions} {
		for _, c := range conditions {
			if strings.Contains(c.Type+c.Message, "west") || c.Status != metav1.ConditionTrue {
				t.Errorf("it says %s=%s: %s", c.Type, c.Status, c.Message)
			}
		}
	}
	if c := p.Status.Capacity; c == nil || c.Available.String() != "1Gi" || len(c.Places) != 1 || len(v.Status.DPUClusters) != 1 {
		t.Errorf("capacity %+v, DPU clusters %v", c, v.Status.DPUClusters)
	}
	if got, err := s.forget(); len(got) > 0 || err != nil {
		t.Errorf("a second time: %q, %v", got, err)
	}
	s.host.Remove(kubetest.DPUStoragePolicy("policy"), kubetest.DPUStorageVendor("vendor"))
	s.settle()
	if s.host.Has(&storagev1alpha1.DPUStoragePolicy{}, "policy") || s.host.Has(&storagev1alpha1.DPUStorageVendor{}, "vendor") {
		t.Error("they cannot be deleted")
	}
}

// TestForgetRefuses: nothing is changed while anything is in the DPU cluster, or its controller may run.
func TestForgetRefuses(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "snap-host-controller.dpu.nvidia.com.dpf.west"}}
	for name, tc := range map[string]struct {
		there func(s *several)
		words string
	}{
		"a host":       {func(s *several) { n := kubetest.DPUStorageNode("c"); n.Spec.DPUCluster = "dpf/west"; s.host.Add(n) }, "DPUStorageNode c: delete it"},
		"a controller": {func(s *several) { s.host.Add(lease.DeepCopy()) }, "has the Lease snap-host-controller.dpu.nvidia.com.dpf.west"},
		"a volume": {func(s *several) {
			s.host.Add(only("vol", "dpf/west"))
			s.settle()
		}, "DPUVolume vol: delete it, and take its finalizers off"},
		"a volume that has lost its record": {func(s *several) {
			s.host.Add(only("vol", "dpf/west"))
			s.settle()
			kubetest.Change(s.host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Status.State = nil })
		}, "DPUVolume vol: "},
		"an attachment": {func(s *several) {
			a := kubetest.DPUVolumeAttachment("vol", "b")
			a.Status.DPUCluster = "dpf/west"
			s.host.Add(a)
		}, "DPUVolumeAttachment b-vol: delete it"},
		"a snapshot": {func(s *several) {
			s.host.Add(&moorv1alpha1.DPUVolumeSnapshot{ObjectMeta: kubetest.HostObject("snap"), Status: moorv1alpha1.DPUVolumeSnapshotStatus{DPUCluster: "dpf/west"}})
		}, "DPUVolumeSnapshot snap: delete it"},
		"many": {func(s *several) {
			for _, name := range []string{"c", "d", "e", "f", "g", "h", "i"} {
				n := kubetest.DPUStorageNode(name)
				n.Spec.DPUCluster = "dpf/west"
				s.host.Add(n)
			}
		}, "DPUStorageNode c, d, e, f, g and 2 more: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := openSeveral(t)
			s.host.Remove(kubetest.DPUStorageNode("b"))
			tc.there(s)
			s.away[s.west] = true
			before := s.host.Writes()
			got, err := s.forget()
			if err == nil || !strings.Contains(err.Error(), "DPU cluster dpf/west is not forgotten: ") || !strings.Contains(err.Error(), tc.words) || len(got) > 0 {
				t.Errorf("%q, %v; want %q", got, err, tc.words)
			}
			if s.host.Writes() != before {
				t.Error("it has changed something")
			}
		})
	}
	s := openSeveral(t)
	s.host.Remove(kubetest.DPUStorageNode("b"))
	s.host.Add(kubetest.DPUVolume("elsewhere", corev1.ReadWriteOnce))
	s.away[s.west] = true
	s.east.Step(time.Hour)
	s.settle()
	if _, err := s.forget(); err != nil {
		t.Errorf("what is in another one does not count: %v", err)
	}
}

package volume_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// racked has DPUs d1 in rack 1 and d2 in rack 2, and drivers of vendors that
// tell racks apart there.
func (m *fixture) racked(drivers ...string) {
	m.t.Helper()
	for name, rack := range map[string]string{"d1": "1", "d2": "2"} {
		has := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, d := range drivers {
			has.Spec.Drivers = append(has.Spec.Drivers, storagev1.CSINodeDriver{Name: d, NodeID: name, TopologyKeys: []string{"rack"}})
		}
		m.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack}}}, has)
	}
}

// changeClass changes the StorageClass of a vendor.
func (m *fixture) changeClass(vendor string, change func(*storagev1.StorageClass)) {
	m.t.Helper()
	class := kubetest.StorageClass(vendor)
	m.Remove(kubetest.StorageClass(vendor))
	change(class)
	m.Add(class)
}

func late(c *storagev1.StorageClass) {
	c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
}

func only(rack string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "rack", Values: []string{rack}}}}}
	}
}

// wanted is volume v, to be reached from racks.
func wanted(racks ...string) *storagev1alpha1.Volume {
	v := kubetest.Volume("v", "gold")
	for _, r := range racks {
		v.Spec.Request.AccessibleFrom = append(v.Spec.Request.AccessibleFrom, map[string]string{"rack": r})
	}
	return v
}

// bindIn plays the vendor, who makes the volume in a rack.
func (m *fixture) bindIn(rack string) {
	m.t.Helper()
	pv := kubetest.VendorPV("pv-v", "v-pvc", "a.csi", corev1.PersistentVolumeReclaimDelete)
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{rack}}}},
	}}}
	m.Add(pv)
	m.bindTo("v-pvc", "pv-v")
	m.settle("v")
}

// TestForWhichDPU: who makes the volume, and for which DPU the claim is.
func TestForWhichDPU(t *testing.T) {
	both := []string{"a.csi", "b.csi"}
	for name, tc := range map[string]struct {
		drivers    []string
		change     func(*fixture)
		volume     *storagev1alpha1.Volume
		vendor, on string
	}{
		"anywhere":                                      {both, func(*fixture) {}, wanted(), "a", ""},
		"no vendor makes a difference":                  {nil, func(*fixture) {}, wanted("2"), "a", ""},
		"in a rack":                                     {both, func(*fixture) {}, wanted("2"), "a", "d2"},
		"in the rack that is preferred":                 {both, func(*fixture) {}, wanted("9", "2", "1"), "a", "d2"},
		"by the vendor that can":                        {both, func(m *fixture) { m.changeClass("a", only("1")) }, wanted("2"), "b", "d2"},
		"where the vendor can":                          {both, func(m *fixture) { m.changeClass("a", only("1")); m.changeClass("b", only("9")) }, wanted("2", "1"), "a", "d1"},
		"by a vendor that makes no difference":          {[]string{"b.csi"}, func(m *fixture) { m.changeClass("b", only("1")) }, wanted("2"), "a", ""},
		"a class that waits, anywhere":                  {both, func(m *fixture) { m.changeClass("a", late) }, wanted(), "a", "d1"},
		"a class that waits, in a rack":                 {both, func(m *fixture) { m.changeClass("a", late) }, wanted("2"), "a", "d2"},
		"a class that waits, and makes no difference":   {nil, func(m *fixture) { m.changeClass("a", late); m.racked() }, wanted("2"), "a", "d2"},
		"a copy, where its source is":                   {both, func(m *fixture) { m.keep("2") }, restored(wanted("1", "2")), "b", "d2"},
		"a copy of what is reached from everywhere":     {both, func(m *fixture) { m.keep("") }, restored(wanted("1")), "b", "d1"},
		"a copy, by a class that waits, with no wishes": {both, func(m *fixture) { m.keep("2"); m.changeClass("b", late) }, restored(wanted()), "b", "d2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			if tc.drivers != nil {
				m.racked(tc.drivers...)
			}
			tc.change(m)
			m.Add(tc.volume)
			m.pass("v")
			pvc := &corev1.PersistentVolumeClaim{}
			m.Get(pvc, "v-pvc")
			if v := m.volume("v"); v.Spec.Volume.StorageVendorName != tc.vendor || pvc.Annotations[selectedNode] != tc.on || v.Status.Unreachable {
				t.Errorf("vendor %s, for DPU %q, %+v", v.Spec.Volume.StorageVendorName, pvc.Annotations[selectedNode], v.Status)
			}
		})
	}
}

// keep adds snapshot s, which vendor b has taken in a rack.
func (m *fixture) keep(rack string) {
	s := kept(true)
	if rack != "" {
		s.Spec.Origin.AccessibleTopology = []map[string]string{{"rack": rack}}
	}
	m.Add(s)
}

func restored(v *storagev1alpha1.Volume) *storagev1alpha1.Volume {
	v.Spec.Request.Source = &storagev1alpha1.CopySource{SnapshotName: "s"}
	return v
}

// TestNowhere: what cannot be had where it is wanted makes no claim, says so,
// and goes on when it can be had.
func TestNowhere(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture)
		volume *storagev1alpha1.Volume
		words  string
	}{
		"no DPU is there": {func(*fixture) {}, wanted("3"), "no vendor of StoragePolicy gold makes volumes that are reached from one of the places asked for: rack=3"},
		"a copy of what is elsewhere": {
			func(m *fixture) { m.keep("1") }, restored(wanted("3", "4")),
			"StorageClass b-class makes no volume that is reached from one of the places asked for: rack=3; rack=4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			m.racked("a.csi", "b.csi")
			tc.change(m)
			m.Add(tc.volume)
			m.settle("v")
			m.wantMessage(tc.words)
			if v := m.volume("v"); !v.Status.Unreachable || v.Status.State != storagev1alpha1.VolumeInProgress || m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") {
				t.Fatalf("%+v; a claim was made: %v", v.Status, m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc"))
			}
			m.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d3", Labels: map[string]string{"rack": "3"}}}, &storagev1.CSINode{
				ObjectMeta: metav1.ObjectMeta{Name: "d3"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "a.csi", NodeID: "d3", TopologyKeys: []string{"rack"}}}},
			})
			m.settle("v")
			if v := m.volume("v"); v.Status.Unreachable != (tc.volume.Spec.Request.Source != nil) {
				t.Errorf("with a DPU there: %+v", v.Status)
			}
		})
	}
}

// TestWhereItWasMade: what is made tells from where it is reached, once and for
// all; what was made elsewhere than wanted never becomes Available.
func TestWhereItWasMade(t *testing.T) {
	m := newFixture(t)
	m.racked("a.csi")
	m.Add(wanted("2", "1"))
	m.pass("v")
	m.bindIn("1")
	v := m.volume("v")
	want := []map[string]string{{"rack": "1"}}
	if diff := cmp.Diff(want, v.Spec.Volume.AccessibleTopology); diff != "" || v.Status.State != storagev1alpha1.VolumeAvailable {
		t.Fatalf("%+v (-want +got):\n%s", v.Status, diff)
	}
	m.Remove(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "d1"}}, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "d2"}})
	m.settle("v")
	if diff := cmp.Diff(want, m.volume("v").Spec.Volume.AccessibleTopology); diff != "" {
		t.Errorf("without the drivers (-want +got):\n%s", diff)
	}

	m = newFixture(t)
	m.racked("a.csi")
	m.Add(wanted("2"))
	m.pass("v")
	m.bindIn("1")
	m.wantMessage("the vendor made PersistentVolume pv-v where it is reached from none of the places asked for: rack=2")
	if v := m.volume("v"); v.Status.State != storagev1alpha1.VolumeInProgress || !v.Status.Unreachable || v.Spec.Volume.ID != "" {
		t.Errorf("%+v, %+v", v.Status, v.Spec.Volume)
	}
}

// TestPutOff: a vendor that cannot make the volume for the DPU is not asked for
// ever.
func TestPutOff(t *testing.T) {
	m := newFixture(t)
	m.racked("a.csi")
	m.changeClass("a", late)
	m.Add(wanted("2"))
	m.pass("v")
	if v := m.volume("v"); v.Status.Unreachable {
		t.Fatalf("%+v", v.Status)
	}
	kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
	m.settle("v")
	m.wantMessage("will never be bound")
	if v := m.volume("v"); !v.Status.Unreachable {
		t.Errorf("%+v", v.Status)
	}
}

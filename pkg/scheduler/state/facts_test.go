package state

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/placement"
)

func TestWarmthOf(t *testing.T) {
	yes, no := true, false
	pre := []metav1.Condition{{Type: storagev1alpha1.ConditionPreEmulated, Status: metav1.ConditionTrue}}
	notPre := []metav1.Condition{{Type: storagev1alpha1.ConditionPreEmulated, Status: metav1.ConditionFalse}}
	now := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		deleted *metav1.Time
		status  storagev1alpha1.DPUVolumeAttachmentStatus
		want    placement.Warmth
	}{
		"nothing yet":                  {nil, storagev1alpha1.DPUVolumeAttachmentStatus{}, placement.Cold},
		"nothing, said so":             {nil, storagev1alpha1.DPUVolumeAttachmentStatus{ControllerAttached: &no, DPUAttached: &no}, placement.Cold},
		"storage":                      {nil, storagev1alpha1.DPUVolumeAttachmentStatus{ControllerAttached: &yes, DPUAttached: &no}, placement.StorageAttached},
		"storage, pre-emulation fails": {nil, storagev1alpha1.DPUVolumeAttachmentStatus{ControllerAttached: &yes, Conditions: notPre}, placement.StorageAttached},
		"pre-emulated":                 {nil, storagev1alpha1.DPUVolumeAttachmentStatus{ControllerAttached: &yes, Conditions: pre}, placement.PreEmulated},
		"attached":                     {nil, storagev1alpha1.DPUVolumeAttachmentStatus{ControllerAttached: &yes, DPUAttached: &yes, Conditions: pre}, placement.Attached},
		"attached, on its way out":     {&now, storagev1alpha1.DPUVolumeAttachmentStatus{ControllerAttached: &yes, DPUAttached: &yes}, placement.Cold},
	} {
		t.Run(name, func(t *testing.T) {
			a := &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted}, Status: test.status}
			if got := warmthOf(a); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestNodeOf(t *testing.T) {
	alive := func(change func(*moorv1alpha1.DPUStorageNode)) *moorv1alpha1.DPUStorageNode {
		n := storageNode("n", 3)
		change(n)
		return n
	}
	condition := func(kind string, status metav1.ConditionStatus) func(*moorv1alpha1.DPUStorageNode) {
		return func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: "Silent"}}
		}
	}
	counted := placement.Free{2, 3, placement.Unknown}
	unknown := placement.UnknownFree()
	now := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		node *moorv1alpha1.DPUStorageNode
		want placement.Node
	}{
		"healthy": {alive(func(*moorv1alpha1.DPUStorageNode) {}), placement.Node{Name: "n", Free: counted}},
		"said to be alive": {
			alive(condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionTrue)),
			placement.Node{Name: "n", Free: counted},
		},
		"host dead": {
			alive(condition(moorv1alpha1.ConditionHostAlive, metav1.ConditionFalse)),
			placement.Node{Name: "n", Free: counted, Trouble: "the host is not alive (Silent)"},
		},
		"DPU dead": {
			alive(condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse)),
			placement.Node{Name: "n", Free: counted, Trouble: "DPU dpu-n is not alive (Silent)"},
		},
		"DPU silent": {
			alive(condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionUnknown)),
			placement.Node{Name: "n", Free: counted, Doubt: "it is not known whether DPU dpu-n is alive (Silent)"},
		},
		"SNAP silent": {
			alive(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false }),
			placement.Node{Name: "n", Free: unknown, Trouble: "the SNAP service of DPU dpu-n does not answer"},
		},
		"DPU dead is the better reason": {alive(func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.SNAPReady = false
			condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse)(n)
		}), placement.Node{Name: "n", Free: unknown, Trouble: "DPU dpu-n is not alive (Silent)"}},
		"being drained is the better reason": {alive(func(n *moorv1alpha1.DPUStorageNode) {
			n.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "new BFB"}
			condition(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse)(n)
		}), placement.Node{Name: "n", Free: counted, Trouble: "DPU dpu-n is being drained: new BFB"}},
		"never reported": {
			alive(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = nil }),
			placement.Node{Name: "n", Free: unknown, Trouble: "DPU dpu-n has never reported"},
		},
		"no DPU": {
			alive(func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName, n.Status.DPU = "", nil }),
			placement.Node{Name: "n", Free: unknown, NoDPU: "the node has no DPU: spec.dpuName of its DPUStorageNode is empty"},
		},
		"going away": {
			alive(func(n *moorv1alpha1.DPUStorageNode) { n.DeletionTimestamp = &now }),
			placement.Node{Name: "n", Free: unknown, NoDPU: "the DPUStorageNode is being deleted"},
		},
		"not counted": {
			alive(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Functions = nil }),
			placement.Node{Name: "n", Free: unknown},
		},
		"a path is lost": {
			alive(func(n *moorv1alpha1.DPUStorageNode) {
				n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "h-a", Since: now, Message: "no path"}}
			}),
			placement.Node{Name: "n", Free: counted, Lost: &placement.Lost{DPU: "dpu-n", Paths: []placement.LostPath{{Volume: "h-a", Message: "no path"}}}},
		},
		"strange counts": {alive(func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Functions = []moorv1alpha1.FunctionCount{{Type: "sf", Free: 9}, {Type: "vf", Free: -3}}
		}), placement.Node{Name: "n", Free: placement.Free{placement.Unknown, 0, placement.Unknown}}},
	} {
		t.Run(name, func(t *testing.T) {
			slim, err := Slim(test.node.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []*moorv1alpha1.DPUStorageNode{test.node, slim.(*moorv1alpha1.DPUStorageNode)} {
				if diff := cmp.Diff(&test.want, nodeOf(o)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestVolumeOf(t *testing.T) {
	for name, test := range map[string]struct {
		source *corev1.CSIPersistentVolumeSource
		want   persistent
		ours   bool
	}{
		"no CSI":       {nil, persistent{}, false},
		"another's":    {&corev1.CSIPersistentVolumeSource{Driver: "other", VolumeHandle: "h"}, persistent{}, false},
		"the second's": {&corev1.CSIPersistentVolumeSource{Driver: second, VolumeHandle: "h"}, persistent{"h", "", placement.VF}, true},
		"default":      {&corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h"}, persistent{"h", "", placement.VF}, true},
		"of a vendor":  {&corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h", VolumeAttributes: map[string]string{"storageVendorName": "x"}}, persistent{"h", "x", placement.VF}, true},
		"pf":           {&corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h", VolumeAttributes: map[string]string{"functionType": "pf", "hotplugFunction": "false"}}, persistent{"h", "", placement.PF}, true},
		"hot-plug":     {&corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h", VolumeAttributes: map[string]string{"functionType": "pf", "hotplugFunction": "true"}}, persistent{"h", "", placement.Hotplug}, true},
		"broken words": {&corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h", VolumeAttributes: map[string]string{"functionType": "?", "hotplugFunction": "?"}}, persistent{"h", "", placement.VF}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{}
			pv.Spec.CSI = test.source
			slim, err := Slim(pv)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []*corev1.PersistentVolume{pv, slim.(*corev1.PersistentVolume)} {
				if got, ours := volumeOf(o, []string{driver, second}); got != test.want || ours != test.ours {
					t.Errorf("got %+v, %v; want %+v, %v", got, ours, test.want, test.ours)
				}
			}
		})
	}
}

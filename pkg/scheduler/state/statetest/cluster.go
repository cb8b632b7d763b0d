// Package statetest builds indexes for tests, from the objects that a
// cluster would hold.
package statetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// Where the objects live, and whose the volumes are.
const (
	Driver         = "csi.snap.nvidia.com"
	Namespace      = "dpf-operator-system"
	ClaimNamespace = "default"
)

// State is how far an attachment has come.
type State int

// The states.
const (
	Requested State = iota
	StorageAttached
	PreEmulated
	Attached
)

// Cluster is a cluster as the extender sees it.
type Cluster struct {
	store *state.Store
}

// New returns an empty cluster.
func New() *Cluster { return &Cluster{state.New([]string{Driver}, clock.RealClock{})} }

// Index is the cluster's state now.
func (c *Cluster) Index() *state.Index { return c.store.Index() }

// Volume adds a claim, and a volume that it is bound to.
func (c *Cluster) Volume(claim string) *Cluster {
	pvc, pv := Volume(claim)
	c.store.Set(pvc)
	c.store.Set(pv)
	return c
}

// Attachment adds an attachment of a claim's volume to a node.
func (c *Cluster) Attachment(claim, node string, s State) *Cluster {
	c.store.Set(Attachment(claim, node, s))
	return c
}

// Node adds a node with a healthy DPU and so many free functions of each type.
func (c *Cluster) Node(name string, free int64) *Cluster {
	c.store.Set(Node(name, free))
	return c
}

// Dead adds a node whose DPU is dead.
func (c *Cluster) Dead(name string) *Cluster {
	n := Node(name, 4)
	meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: moorv1alpha1.ConditionDPUAlive, Status: metav1.ConditionFalse, Reason: "Silent"})
	c.store.Set(n)
	return c
}

// Drained adds a node whose DPU is being drained.
func (c *Cluster) Drained(name string) *Cluster {
	n := Node(name, 4)
	n.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "new BFB"}
	c.store.Set(n)
	return c
}

// Doubtful adds a node of whose DPU it is not known whether it is alive.
func (c *Cluster) Doubtful(name string) *Cluster {
	n := Node(name, 4)
	meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: moorv1alpha1.ConditionDPUAlive, Status: metav1.ConditionUnknown, Reason: "Silent"})
	c.store.Set(n)
	return c
}

// VolumeOf adds a claim, and a volume of a vendor that it is bound to.
func (c *Cluster) VolumeOf(claim, vendor string) *Cluster {
	pvc, pv := Volume(claim)
	pv.Spec.CSI.VolumeAttributes = map[string]string{storagev1alpha1.VolumeContextVendor: vendor}
	c.store.Set(pvc)
	c.store.Set(pv)
	return c
}

// Lost adds a node whose DPU has lost its only way, to the storage of a claim's volume.
func (c *Cluster) Lost(name, claim string) *Cluster {
	n := Node(name, 4)
	n.Status.DPU.AllPathsLost = true
	n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "volume-" + claim, Message: "no path"}}
	c.store.Set(n)
	return c
}

// OnOpened is the store's.
func (c *Cluster) OnOpened(tell func(state.Opened)) { c.store.OnOpened(tell) }

// Volume is a claim with the volume that it is bound to; the volume's handle
// is "volume-" and the claim's name.
func Volume(claim string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ClaimNamespace, Name: claim},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + claim},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: "volume-" + claim},
		}},
	}
	return c, v
}

// Attachment is an attachment of a claim's volume to a node.
func Attachment(claim, node string, s State) *storagev1alpha1.DPUVolumeAttachment {
	volume := "volume-" + claim
	a := &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: kube.AttachmentName(node, volume)},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: node, DPUVolumeName: volume, Role: storagev1alpha1.RolePrimary,
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}
	stored, shown := s >= StorageAttached, s == Attached
	a.Status.ControllerAttached, a.Status.DPUAttached = &stored, &shown
	if s == PreEmulated {
		a.Spec.Role = storagev1alpha1.RoleReplica
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: storagev1alpha1.ConditionPreEmulated, Status: metav1.ConditionTrue, Reason: storagev1alpha1.ReasonSuccess})
	}
	return a
}

// Node is a node with a healthy DPU.
func Node(name string, free int64) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name},
		Status: moorv1alpha1.DPUStorageNodeStatus{DPU: &moorv1alpha1.DPUState{
			SNAPReady: true,
			Functions: []moorv1alpha1.FunctionCount{{Type: "pf", Total: 64, Free: free}, {Type: "vf", Total: 64, Free: free}},
		}},
	}
}

// Pod uses the claims given.
func Pod(claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ClaimNamespace, Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
	}
	for i, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return p
}

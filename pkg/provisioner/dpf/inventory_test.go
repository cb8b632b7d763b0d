package dpf

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/volume"
)

// boundVolume is a DPUVolume that its vendor has made.
func boundVolume(name string) *storagev1alpha1.DPUVolume {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return &storagev1alpha1.DPUVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid"},
		Spec: storagev1alpha1.DPUVolumeSpec{
			DPUStoragePolicyName: "policy", VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: size},
		},
		Status: storagev1alpha1.DPUVolumeStatus{
			Phase: storagev1alpha1.DPUVolumeBound,
			State: &storagev1alpha1.DPUVolumeState{VolumeInfo: &storagev1alpha1.VolumeInfo{Capacity: size}},
		},
	}
}

func attachmentOf(volume, node string, change func(*storagev1alpha1.DPUVolumeAttachment)) *storagev1alpha1.DPUVolumeAttachment {
	a := &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node + "-" + volume},
		Spec:       storagev1alpha1.DPUVolumeAttachmentSpec{DPUVolumeName: volume, DPUNodeName: node},
		Status:     storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: ptr.To(true)},
	}
	change(a)
	return a
}

func TestInventoryTellsWhoHasAVolume(t *testing.T) {
	same := func(*storagev1alpha1.DPUVolumeAttachment) {}
	replica := func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }
	h := newHost(
		t, nil,
		boundVolume("a"), boundVolume("b"), &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "unmade"}},
		attachmentOf("a", "n2", same), attachmentOf("a", "n1", same), attachmentOf("a", "n3", replica),
		attachmentOf("b", "n4", func(a *storagev1alpha1.DPUVolumeAttachment) { a.Status.DPUAttached = nil }),
		attachmentOf("a", "n5", func(a *storagev1alpha1.DPUVolumeAttachment) {
			a.DeletionTimestamp, a.Finalizers = ptr.To(metav1.Now()), []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
		}),
		attachmentOf("a", "n6", func(a *storagev1alpha1.DPUVolumeAttachment) { // a fence took it
			a.Status.DPUAttached = nil
			a.Status.Conditions = []metav1.Condition{{
				Type: storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, Status: metav1.ConditionFalse, Reason: storagev1alpha1.ReasonAwaitingDeletion,
			}}
		}),
	)
	entries, next, err := h.platform.Inventory.List(t.Context(), provisioner.Page{})
	if err != nil || next != "" {
		t.Fatal(next, err)
	}
	got := map[string][]string{}
	for _, e := range entries {
		got[e.ID] = e.Nodes
	}
	if diff := cmp.Diff(map[string][]string{"a": {"n1", "n2", "n5", "n6"}, "b": nil}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := h.platform.Inventory.Look(t.Context(), "unmade"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("look at a volume that is not made yet: %v", err)
	}
}

// filled answers every list with the same objects, as an informer's cache does:
// without a copy and without decoding. It counts the lists; other reads panic.
type filled struct {
	client.Client
	volumes     storagev1alpha1.DPUVolumeList
	attachments storagev1alpha1.DPUVolumeAttachmentList
	lists       map[string]int
}

func (f *filled) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	f.lists[fmt.Sprintf("%T", list)]++
	switch l := list.(type) {
	case *storagev1alpha1.DPUVolumeList:
		*l = f.volumes
	case *storagev1alpha1.DPUVolumeAttachmentList:
		*l = f.attachments
	}
	return nil
}

// thousand is an inventory of 1,000 volumes, each with a primary and a replica,
// and what it reads them from.
func thousand() (*volume.Inventory, *filled) {
	f := &filled{lists: map[string]int{}}
	for i := range 1000 {
		v := boundVolume(fmt.Sprintf("pvc-%04d", 999-i))
		f.volumes.Items = append(f.volumes.Items, *v)
		for _, node := range []string{"n1", "n2"} {
			f.attachments.Items = append(f.attachments.Items, *attachmentOf(v.Name, node, func(a *storagev1alpha1.DPUVolumeAttachment) {
				if node == "n2" {
					a.Spec.Role = storagev1alpha1.RoleReplica
				}
			}))
		}
	}
	o := request.Options{Client: f, Namespace: namespace}
	return volume.NewInventory(o), f
}

// TestAThousandVolumesAreTwoReads: the volumes and their attachments are read once
// each, however many there are.
func TestAThousandVolumesAreTwoReads(t *testing.T) {
	inventory, read := thousand()
	entries, _, err := inventory.List(t.Context(), provisioner.Page{})
	if err != nil || len(entries) != 1000 {
		t.Fatalf("%d volumes: %v", len(entries), err)
	}
	want := map[string]int{"*v1alpha1.DPUVolumeList": 1, "*v1alpha1.DPUVolumeAttachmentList": 1}
	if diff := cmp.Diff(want, read.lists); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkInventory(b *testing.B) {
	inventory, _ := thousand()
	for b.Loop() {
		if _, _, err := inventory.List(b.Context(), provisioner.Page{}); err != nil {
			b.Fatal(err)
		}
	}
}

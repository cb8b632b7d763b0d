package dpf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
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

// cached answers as an informer's cache does, by its indexes and without decoding,
// and counts the objects that it was asked for.
type cached struct {
	client.Client
	volumes     map[string]*storagev1alpha1.DPUVolume
	attachments map[string][]storagev1alpha1.DPUVolumeAttachment
	listed, got int
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	v, ok := c.volumes[key.Name]
	if _, is := o.(*storagev1alpha1.DPUVolume); !is || !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "dpuvolumes"}, key.Name)
	}
	c.got++
	*o.(*storagev1alpha1.DPUVolume) = *v
	return nil
}

func (c *cached) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	switch l := list.(type) {
	case *storagev1alpha1.DPUVolumeList:
		for _, v := range c.volumes {
			l.Items = append(l.Items, *v)
		}
		c.listed += len(l.Items)
	case *storagev1alpha1.DPUVolumeAttachmentList:
		if o.FieldSelector == nil {
			return errors.New("the attachments of all volumes are asked for")
		}
		of, _ := o.FieldSelector.RequiresExactMatch(attachment.Index().Field)
		l.Items = slices.Clone(c.attachments[of])
		c.got += len(l.Items)
	}
	return nil
}

// many is a cache of n volumes, each with a primary and a replica.
func many(n int) *cached {
	c := &cached{volumes: map[string]*storagev1alpha1.DPUVolume{}, attachments: map[string][]storagev1alpha1.DPUVolumeAttachment{}}
	for i := range n {
		v := boundVolume(fmt.Sprintf("pvc-%06d", i))
		c.volumes[v.Name] = v
		for _, node := range []string{"n1", "n2"} {
			c.attachments[v.Name] = append(c.attachments[v.Name], *attachmentOf(v.Name, node, func(a *storagev1alpha1.DPUVolumeAttachment) {
				if node == "n2" {
					a.Spec.Role = storagev1alpha1.RoleReplica
				}
			}))
		}
	}
	return c
}

func (c *cached) inventory() *volume.Inventory {
	return volume.NewInventory(request.Options{Client: c, Namespace: namespace})
}

// walk lists all volumes in pages, and calls between after each.
func walk(tb testing.TB, i *volume.Inventory, most int, between func()) []string {
	tb.Helper()
	var out []string
	for page := (provisioner.Page{Max: most}); ; {
		entries, next, err := i.List(tb.Context(), page)
		if err != nil || most > 0 && len(entries) > most {
			tb.Fatalf("%d entries of %d: %v", len(entries), most, err)
		}
		for _, e := range entries {
			if len(e.Nodes) != 1 || e.Nodes[0] != "n1" {
				tb.Fatalf("volume %s is on %v", e.ID, e.Nodes)
			}
			out = append(out, e.ID)
		}
		if next == "" {
			return out
		}
		page.After = next
		between()
	}
}

// TestAPageCostsWhatIsOnIt: a listing reads each volume twice, once to sort and
// once to tell of it, and each attachment once, in however many pages.
func TestAPageCostsWhatIsOnIt(t *testing.T) {
	for _, most := range []int{0, 1, 100, 999, 1000, 2000} {
		c := many(1000)
		got := walk(t, c.inventory(), most, func() {})
		if len(got) != 1000 || !slices.IsSorted(got) {
			t.Errorf("pages of %d: %d volumes, in order %t", most, len(got), slices.IsSorted(got))
		}
		if c.listed != 1000 || c.got != 3000 {
			t.Errorf("pages of %d: %d volumes were listed, want 1000; %d objects were read, want 3000", most, c.listed, c.got)
		}
	}
}

// TestVolumesComeAndGoBetweenPages: what is there throughout is met once, whatever
// else lists meanwhile; what went is not told of.
func TestVolumesComeAndGoBetweenPages(t *testing.T) {
	c := many(10)
	i, page := c.inventory(), 0
	got := walk(t, i, 3, func() {
		page++
		switch page {
		case 1: // beside the token, before it and after it
			delete(c.volumes, "pvc-000002")
			delete(c.volumes, "pvc-000000")
			delete(c.volumes, "pvc-000007")
		case 2:
			extra := many(1).volumes["pvc-000000"]
			c.volumes["pvc-000000"] = extra
			walk(t, i, 4, func() {})
		}
	})
	want := []string{"pvc-000000", "pvc-000001", "pvc-000002", "pvc-000003", "pvc-000004", "pvc-000005", "pvc-000006", "pvc-000008", "pvc-000009"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestATokenOutlivesTheProcess: a page goes on where another process ended.
func TestATokenOutlivesTheProcess(t *testing.T) {
	c := many(5)
	entries, next, err := c.inventory().List(t.Context(), provisioner.Page{After: "pvc-000002", Max: 5})
	if err != nil || next != "" || len(entries) != 2 || entries[0].ID != "pvc-000003" {
		t.Errorf("%v, next %q, %v", entries, next, err)
	}
}

func BenchmarkInventory(b *testing.B) {
	for _, most := range []int{0, 500} {
		b.Run(fmt.Sprintf("volumes=50000/page=%d", most), func(b *testing.B) {
			i := many(50_000).inventory()
			for b.Loop() {
				if n := len(walk(b, i, most, func() {})); n != 50_000 {
					b.Fatal(n)
				}
			}
		})
	}
}

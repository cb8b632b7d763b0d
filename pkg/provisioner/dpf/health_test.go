package dpf

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/health"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// ailing is a volume with a Healthy condition.
func ailing(name, words string) *storagev1alpha1.DPUVolume {
	v, status := boundVolume(name), metav1.ConditionTrue
	if words != "" {
		status = metav1.ConditionFalse
	}
	v.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionHealthy, Status: status, Message: words}}
	return v
}

func nodeThat(change func(*moorv1alpha1.DPUStorageNode)) *moorv1alpha1.DPUStorageNode {
	n := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "d1"}}
	n.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true}
	change(n)
	return n
}

func TestHealthIsOfThePrimariesAlone(t *testing.T) {
	replica := func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }
	sound := func(*storagev1alpha1.DPUVolumeAttachment) {}
	down := nodeThat(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false })
	unmade := ailing("unmade", "never begun")
	unmade.Status.Phase = storagev1alpha1.DPUVolumePending
	there := []client.Object{
		down, unmade, boundVolume("used"), attachmentOf("used", "n1", sound), boundVolume("spare"), attachmentOf("spare", "n1", replica),
		ailing("a", "gone"), boundVolume("idle"),
	}
	h := health.New(request.Options{Client: newHost(t, nil, there...), Namespace: namespace}, clock.RealClock{})
	var all []provisioner.VolumeHealth
	for page := (provisioner.Page{Max: 1}); ; {
		got, next, err := h.List(t.Context(), page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
		if page.After = next; next == "" {
			break
		}
	}
	if len(all) != 2 || all[0].VolumeID != "a" || all[1].VolumeID != "used" || all[1].Problems[0].Reason != "SNAPDown" {
		t.Errorf("unwell are %+v", all)
	}
	one, err := h.Get(t.Context(), "used")
	if diff := cmp.Diff(all[1], one); err != nil || diff != "" {
		t.Errorf("of one volume (-list +get): %s, %v", diff, err)
	}
	for _, id := range []string{"unmade", "nothing"} {
		if _, err := h.Get(t.Context(), id); !errors.Is(err, provisioner.ErrNotFound) {
			t.Errorf("of %s: %v", id, err)
		}
	}
}

// TestAPageOfHealthCostsWhatIsOnIt: a listing reads each volume twice, once to sort and
// once to look at it, and those that begin a page once more, in however many pages.
func TestAPageOfHealthCostsWhatIsOnIt(t *testing.T) {
	for _, most := range []int{0, 1, 3, 10, 20} {
		c := many(1000)
		for i := 0; i < 1000; i += 100 {
			v := ailing(fmt.Sprintf("pvc-%06d", i), "gone")
			c.volumes[v.Name] = v
		}
		h, pages := health.New(request.Options{Client: c, Namespace: namespace}, clock.RealClock{}), 0
		var got []string
		for page := (provisioner.Page{Max: most}); ; {
			unwell, next, err := h.List(t.Context(), page)
			if err != nil || most > 0 && len(unwell) > most {
				t.Fatalf("%d unwell of %d: %v", len(unwell), most, err)
			}
			for _, v := range unwell {
				got = append(got, v.VolumeID)
			}
			pages++
			if page.After = next; next == "" {
				break
			}
		}
		if len(got) != 10 || !slices.IsSorted(got) {
			t.Errorf("pages of %d: unwell are %v", most, got)
		}
		const objects = 3 // a volume and its two attachments
		if want := objects * (1000 + pages - 1); c.listed != 1000 || c.got != want {
			t.Errorf("pages of %d: %d volumes were listed, want 1000; %d objects were read, want %d", most, c.listed, c.got, want)
		}
	}
}

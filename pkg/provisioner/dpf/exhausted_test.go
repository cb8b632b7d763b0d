package dpf

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
)

// nodeWith is node a whose DPU counts so many functions.
func nodeWith(counts ...moorv1alpha1.FunctionCount) *moorv1alpha1.DPUStorageNode {
	out := aNode("a")
	out.Status.DPU = &moorv1alpha1.DPUState{Functions: counts}
	return out
}

// TestExhausted: an attach that waits in vain says that the node is full if it
// is, and nothing else does.
func TestExhausted(t *testing.T) {
	vf := func(total, free int64) moorv1alpha1.FunctionCount {
		return moorv1alpha1.FunctionCount{Type: "vf", Total: total, Free: free}
	}
	plug := moorv1alpha1.FunctionCount{Type: "hotplug", Total: 31}
	for name, tc := range map[string]struct {
		aNode *moorv1alpha1.DPUStorageNode
		// has is whether the attachment has its function already.
		has, hotplug bool
		want         bool
	}{
		"none left":                 {aNode: nodeWith(vf(16, 0), plug), want: true},
		"one left":                  {aNode: nodeWith(vf(16, 1), plug)},
		"none left of another kind": {aNode: nodeWith(vf(16, 1), plug), hotplug: true, want: true},
		"others are left":           {aNode: nodeWith(vf(16, 0), moorv1alpha1.FunctionCount{Type: "hotplug", Total: 31, Free: 1}), hotplug: true},
		"it has one":                {aNode: nodeWith(vf(16, 0)), has: true},
		"not counted":               {aNode: aNode("a")},
		"not this kind":             {aNode: nodeWith(plug)},
		"there are none at all":     {aNode: nodeWith(vf(0, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			waits := anAttachment("")
			if !tc.has {
				waits.Status.DPU = nil
			}
			spec := attachSpec()
			if tc.hotplug {
				waits.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
				spec.VolumeContext = map[string]string{"functionType": "pf", "hotplugFunction": "true"}
			}
			h := newHost(t, nil, aVolume(), tc.aNode, waits)
			_, err := h.platform.Attachments.Attach(t.Context(), spec)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want one that says that the time is over", err)
			}
			if errors.Is(err, provisioner.ErrExhausted) != tc.want {
				t.Errorf("error %v, exhausted: want %v", err, tc.want)
			}
			now := &storagev1alpha1.DPUVolumeAttachment{}
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(waits), now); err != nil {
				t.Errorf("the attachment, which may come yet: %v", err)
			}
		})
	}
}

const full = "none of 16 vf functions is free"

// fill is a DPU without a function: it says so of whatever it is asked for.
func fill(t *testing.T) func(client.Client, client.Object) {
	return func(c client.Client, o client.Object) {
		a, ok := o.(*storagev1alpha1.DPUVolumeAttachment)
		if !ok {
			return
		}
		said := a.DeepCopy()
		said.Status = refusedByDPU()
		if err := c.Status().Update(t.Context(), said); err != nil {
			t.Error(err)
		}
	}
}

func refusedByDPU() (out storagev1alpha1.DPUVolumeAttachmentStatus) {
	out.Message = full
	out.Conditions = []metav1.Condition{{
		Type: storagev1alpha1.ConditionDPUAttached, Status: metav1.ConditionFalse, Reason: storagev1alpha1.ReasonExhausted, Message: full,
	}}
	return out
}

// modes runs a test in both modes of attaching.
func modes(t *testing.T, test func(t *testing.T, requester storagev1alpha1.Requester, open func(*hostCluster) *attachment.Attachments)) {
	t.Run("Controller", func(t *testing.T) {
		test(t, "", func(h *hostCluster) *attachment.Attachments { return h.platform.Attachments.(*attachment.Attachments) })
	})
	t.Run("Node", func(t *testing.T) {
		test(t, storagev1alpha1.RequesterNode, func(h *hostCluster) *attachment.Attachments { return asNode(t, h, nil) })
	})
}

// TestTakenBack: a DPU that has said that it has no function left is believed at
// once, and of the request nothing is left that it could grant later.
func TestTakenBack(t *testing.T) {
	modes(t, func(t *testing.T, _ storagev1alpha1.Requester, open func(*hostCluster) *attachment.Attachments) {
		h := newHost(t, fill(t), aVolume(), aNode("a"))
		for range 2 { // asked again it is made anew
			_, err := open(h).Attach(t.Context(), attachSpec())
			if !errors.Is(err, provisioner.ErrExhausted) || provisioner.Uncertain(err) || !strings.Contains(err.Error(), full) {
				t.Errorf("error %v, want a final ErrExhausted with the DPU's words", err)
			}
			var left storagev1alpha1.DPUVolumeAttachmentList
			if err := h.List(t.Context(), &left); err != nil || len(left.Items) != 0 {
				t.Fatalf("left: %+v, error %v", left.Items, err)
			}
		}
	})
}

// TestNotTakenBack: what this call has not made is not its to take back,
// whatever the DPU says.
func TestNotTakenBack(t *testing.T) {
	modes(t, func(t *testing.T, requester storagev1alpha1.Requester, open func(*hostCluster) *attachment.Attachments) {
		for name, there := range map[string]*storagev1alpha1.DPUVolumeAttachment{
			"asked for before": by(requester, ""),
			"a replica":        anAttachment(storagev1alpha1.RoleReplica),
		} {
			t.Run(name, func(t *testing.T) {
				there.Status = refusedByDPU()
				h := newHost(t, fill(t), aVolume(), aNode("a"), there)
				if _, err := open(h).Attach(t.Context(), attachSpec()); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want one that says that the time is over", err)
				}
				now := anAttachment("")
				if err := h.Get(t.Context(), client.ObjectKeyFromObject(there), now); err != nil || now.UID != there.UID {
					t.Errorf("UID %s, error %v", now.UID, err)
				}
			})
		}
	})
}

// TestShownMeanwhile: a function comes free right before the request is taken
// back. What the host sees already is not taken from it.
func TestShownMeanwhile(t *testing.T) {
	modes(t, func(t *testing.T, _ storagev1alpha1.Requester, open func(*hostCluster) *attachment.Attachments) {
		h := newHost(t, fill(t), aVolume(), aNode("a"))
		now := anAttachment("")
		h.beforeDelete = func() {
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
				t.Fatal(err)
			}
			show(t)(h, now)
		}
		got, err := open(h).Attach(t.Context(), attachSpec())
		if err != nil || got.PublishContext["nv-pciDeviceAddress"] != "3b:00.2" {
			t.Errorf("got %v, error %v", got, err)
		}
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || !attachment.Shown(now) {
			t.Errorf("status %+v, error %v", now.Status, err)
		}
	})
}

// TestChangedMeanwhile: a change that is no function makes no difference.
func TestChangedMeanwhile(t *testing.T) {
	h := newHost(t, fill(t), aVolume(), aNode("a"))
	tries := 0
	h.beforeDelete = func() {
		if tries++; tries > 1 {
			return
		}
		now := anAttachment("")
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
			t.Fatal(err)
		}
		now.Labels = map[string]string{"of": "another"}
		if err := h.WithWatch.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	_, err := h.platform.Attachments.Attach(t.Context(), attachSpec())
	if !errors.Is(err, provisioner.ErrExhausted) || tries != 2 {
		t.Errorf("error %v after %d tries", err, tries)
	}
}

// TestGoesOn: what takes long to go may have been an effect.
func TestGoesOn(t *testing.T) {
	h := newHost(t, func(c client.Client, o client.Object) {
		o.SetFinalizers([]string{"x/y"})
		if err := c.Update(t.Context(), o); err != nil {
			t.Error(err)
		}
		fill(t)(c, o)
	}, aVolume(), aNode("a"))
	if _, err := h.platform.Attachments.Attach(t.Context(), attachSpec()); !provisioner.Uncertain(err) {
		t.Errorf("error %v", err)
	}
}

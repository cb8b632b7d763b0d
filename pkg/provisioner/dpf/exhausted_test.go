package dpf

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// nodeWith is node a whose DPU counts so many functions.
func nodeWith(counts ...moorv1alpha1.FunctionCount) *moorv1alpha1.DPUStorageNode {
	out := node("a")
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
		node *moorv1alpha1.DPUStorageNode
		// has is whether the attachment has its function already.
		has, hotplug bool
		want         bool
	}{
		"none left":                 {node: nodeWith(vf(16, 0), plug), want: true},
		"one left":                  {node: nodeWith(vf(16, 1), plug)},
		"none left of another kind": {node: nodeWith(vf(16, 1), plug), hotplug: true, want: true},
		"others are left":           {node: nodeWith(vf(16, 0), moorv1alpha1.FunctionCount{Type: "hotplug", Total: 31, Free: 1}), hotplug: true},
		"it has one":                {node: nodeWith(vf(16, 0)), has: true},
		"nobody counts":             {node: node("a")},
		"not this kind":             {node: nodeWith(plug)},
		"there are none at all":     {node: nodeWith(vf(0, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			waits := attachment("")
			if !tc.has {
				waits.Status.DPU = nil
			}
			spec := attachSpec()
			if tc.hotplug {
				waits.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
				spec.VolumeContext = map[string]string{"functionType": "pf", "hotplugFunction": "true"}
			}
			h := newHost(t, nil, volume(), tc.node, waits)
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

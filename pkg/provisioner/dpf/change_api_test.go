//go:build api

package dpf_test

import (
	"errors"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// modify plays a vendor that knows iops alone: it returns what is in effect of
// the mutable parameters that the volume asks for.
func modify(v *storagev1alpha1.DPUVolume) map[string]string {
	var have map[string]string
	if v.Status.State != nil && v.Status.State.VolumeInfo != nil {
		have = v.Status.State.VolumeInfo.MutableParameters
	}
	for key := range v.Spec.MutableParameters {
		if key != "iops" {
			kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}.
				False(storagev1alpha1.ConditionModified, storagev1alpha1.ReasonFailure, "no parameter "+key)
			return have
		}
	}
	return v.Spec.MutableParameters
}

// TestMadeWithParameters: a volume is there when its parameters are in effect;
// one whose parameters are refused is not left behind.
func TestMadeWithParameters(t *testing.T) {
	platform := onServer(t, player{})
	spec := provisioner.VolumeSpec{
		Name: "v", CapacityBytes: 1 << 20, Mode: provisioner.Block,
		AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}, Mutable: map[string]string{"iops": "100"},
	}
	for range 2 {
		if _, err := platform.Volumes.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := platform.Change.Modify(t.Context(), "v", map[string]string{"iops": "200"}); err != nil {
		t.Fatal(err)
	}
	if _, err := platform.Volumes.Create(t.Context(), spec); err != nil {
		t.Errorf("asked for again after it was changed: %v", err)
	}
	spec.Name, spec.Mutable = "w", map[string]string{"color": "red"}
	if _, err := platform.Volumes.Create(t.Context(), spec); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("parameters that the vendor refuses: %v", err)
	}
	if _, err := platform.Volumes.Get(t.Context(), "w"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("left behind: %v", err)
	}
}

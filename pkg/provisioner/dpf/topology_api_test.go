//go:build api

package dpf_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// elsewhere says of a volume that it cannot be had where it is to be reached.
func (p player) elsewhere(v *storagev1alpha1.DPUVolume) bool {
	fits := func(at map[string]string) bool { return provisioner.ReachFrom(at, p.places) == provisioner.Reached }
	if len(v.Spec.AccessibleFrom) == 0 || slices.ContainsFunc(v.Spec.AccessibleFrom, fits) {
		return false
	}
	conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
	conditions.False(storagev1alpha1.ConditionAccessible, storagev1alpha1.ReasonFailure, "no vendor is there")
	conditions.True(storagev1alpha1.ConditionScheduled)
	return true
}

// TestPlaces: a volume tells from where it is reached; one that cannot be had
// where it is wanted is refused at once, for good, and nothing is left of it.
func TestPlaces(t *testing.T) {
	rack := func(v string) provisioner.Place { return provisioner.Place{"rack": v} }
	volumes := onServer(t, player{places: []map[string]string{rack("1")}}).Volumes
	want := func(name string, from ...provisioner.Place) (provisioner.Volume, error) {
		return volumes.Create(t.Context(), provisioner.VolumeSpec{
			Name: name, CapacityBytes: 1 << 20, Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}, AccessibleFrom: from,
		})
	}
	for name, from := range map[string][]provisioner.Place{"anywhere": nil, "there": {rack("1")}, "there-too": {rack("2"), rack("1")}} {
		v, err := want(name, from...)
		if diff := cmp.Diff([]provisioner.Place{rack("1")}, v.AccessibleTopology); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := want("there", rack("3"), rack("1")); err != nil {
		t.Errorf("again, with other wishes: %v", err)
	}
	if _, err := want("there", rack("3")); !errors.Is(err, provisioner.ErrExists) {
		t.Errorf("again, from elsewhere: %v", err)
	}
	if _, err := volumes.Get(t.Context(), "there"); err != nil {
		t.Errorf("what was made is gone: %v", err)
	}
	_, err := want("elsewhere", rack("3"))
	if !errors.Is(err, provisioner.ErrExhausted) || provisioner.Uncertain(err) || !strings.Contains(err.Error(), "no vendor is there") {
		t.Errorf("elsewhere: %v", err)
	}
	if _, err := volumes.Get(t.Context(), "elsewhere"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("left behind: %v", err)
	}
	var all []provisioner.Place
	for range 300 {
		all = append(all, rack("1"))
	}
	if _, err := want("many", all...); err != nil {
		t.Errorf("more places than the kind takes: %v", err)
	}
	var list storagev1alpha1.DPUVolumeList
	if err := clusters.Host.List(t.Context(), &list, client.MatchingFields{"metadata.name": "many"}); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %d volumes", err, len(list.Items))
	}
	list.Items[0].Spec.AccessibleFrom = nil
	if err := clusters.Host.Update(t.Context(), &list.Items[0]); err == nil || !strings.Contains(err.Error(), "accessibleFrom is immutable") {
		t.Errorf("changed: %v", err)
	}
}

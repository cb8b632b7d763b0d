package replica

import (
	"slices"
	"strings"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// at puts DPUs into racks; "" is one that does not tell.
func (w *fixture) at(racks map[string]string) {
	w.t.Helper()
	for node, rack := range racks {
		w.changeNode(node, func(_ *kubeNode, d *dpuNode) {
			d.Status.Topology = map[string]string{"storage.moor.dev/dpu": "dpu-" + node}
			if rack != "" {
				d.Status.Topology["rack"] = rack
			}
		})
	}
}

// reachedFrom says from where the volume is reached.
func (w *fixture) reachedFrom(racks ...string) {
	w.t.Helper()
	v := &storagev1alpha1.DPUVolume{}
	w.Get(v, "vol")
	info := &storagev1alpha1.VolumeInfo{}
	for _, r := range racks {
		info.AccessibleTopology = append(info.AccessibleTopology, map[string]string{"rack": r})
	}
	v.Status.State = &storagev1alpha1.DPUVolumeState{VolumeInfo: info}
	w.must(w.Direct.Status().Update(w.t.Context(), v))
}

// TestWhereTheVolumeIsReached: replicas are made, and kept, where the DPU
// reaches the volume; where that is not known none is made, and those that are
// there stay.
func TestWhereTheVolumeIsReached(t *testing.T) {
	w := newFixture(t, 4, 3)
	w.attach("vol", "a", primary)
	w.at(map[string]string{"a": "1", "b": "1", "c": "2", "d": ""})
	wants := func(words string, nodes ...string) {
		t.Helper()
		w.pass("vol")
		w.letGo()
		w.pass("vol")
		if got := w.replicas("vol"); !slices.Equal(got, nodes) {
			t.Errorf("replicas on %v, want %v", got, nodes)
		}
		if got := w.state("vol").Message; !strings.Contains(got, words) || (words == "") != (got == "") {
			t.Errorf("message %q, want %q", got, words)
		}
	}
	w.reachedFrom("1")
	wants("its DPU does not reach the volume", "b")
	w.reachedFrom("1", "2")
	wants("it is not known whether its DPU reaches the volume", "b", "c")
	w.at(map[string]string{"b": ""})
	wants("it is not known", "b", "c")
	w.at(map[string]string{"d": "2"})
	wants("", "b", "c", "d")
	w.reachedFrom("2")
	wants("", "b", "c", "d") // b may be there: it does not tell
	w.at(map[string]string{"b": "1"})
	wants("does not reach", "c", "d")
	w.reachedFrom()
	wants("", "b", "c", "d")
}

package replica

import (
	"slices"
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// at puts DPUs into racks; "" is one that does not tell.
func (w *fixture) at(racks map[string]string) {
	w.t.Helper()
	for node, rack := range racks {
		w.changeNode(node, func(_ *kubeNode, d *dpuNode) {
			d.Status.Topology = map[string]string{"storage.moor.dev/dpu-name": "dpu-" + node}
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

// TestLostPaths: no replica is made where the DPU has lost its way to the volume's
// storage, and those that are there stay.
func TestLostPaths(t *testing.T) {
	const (
		own    = "node c: DPU dpu-c has lost its way to the storage of volume vol"
		vendor = `node c: DPU dpu-c has lost its way to the storage of vendor "x" (volume akin)`
	)
	for name, tc := range map[string]struct {
		lost  []string
		want  []string
		words string
	}{
		"none":                  {nil, []string{"b", "c"}, ""},
		"its own":               {[]string{"vol"}, []string{"b"}, own},
		"of its vendor":         {[]string{"akin"}, []string{"b"}, vendor},
		"its own and others":    {[]string{"akin", "other", "vol"}, []string{"b"}, own},
		"of another vendor":     {[]string{"other"}, []string{"b", "c"}, ""},
		"of no vendor yet":      {[]string{"new"}, []string{"b", "c"}, ""},
		"of a volume that went": {[]string{"gone"}, []string{"b", "c"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 3, 2)
			for _, v := range []string{"akin", "other", "new"} {
				w.volume(v, 1, 0)
			}
			w.vendor("vol", "x")
			w.vendor("akin", "x")
			w.vendor("other", "y")
			w.attach("vol", "a", primary)
			w.attach("vol", "b", replica)
			made := w.attachment("vol", "b")
			made.Labels = map[string]string{storagev1alpha1.LabelReplicaOf: "vol"}
			w.must(w.Direct.Update(t.Context(), made))
			w.taint("d", "gpu")
			w.pod("p", nil, "vol")
			w.lost("b", "vol", "akin")
			w.lost("c", tc.lost...)
			w.pass("vol")
			if got := w.replicas("vol"); !slices.Equal(got, tc.want) {
				t.Errorf("replicas on %v, want %v", got, tc.want)
			}
			if got := w.state("vol").Message; !strings.Contains(got, tc.words) || (tc.words == "") != (got == "") {
				t.Errorf("message %q, want %q", got, tc.words)
			}
			w.lost("c")
			w.pass("vol")
			if got := w.replicas("vol"); !slices.Equal(got, []string{"b", "c"}) {
				t.Errorf("replicas on %v when the paths are back", got)
			}
		})
	}
}

// TestDrainedDPU: a DPU that is drained gets no new replica, which is told, and one when the
// drain is taken back.
func TestDrainedDPU(t *testing.T) {
	w := newFixture(t, 2, 1)
	w.attach("vol", "a", primary)
	w.pod("p", nil, "vol")
	for _, n := range []string{"b", "c", "d"} {
		w.changeNode(n, func(_ *kubeNode, d *dpuNode) { d.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "new BFB"} })
	}
	w.pass("vol")
	if got := w.replicas("vol"); len(got) != 0 {
		t.Errorf("replicas on %v", got)
	}
	if got := w.state("vol").Message; !strings.Contains(got, "DPU dpu-c is being drained: new BFB") {
		t.Errorf("message %q", got)
	}
	w.changeNode("c", func(_ *kubeNode, d *dpuNode) { d.Spec.Drain = nil })
	w.pass("vol")
	if got := w.replicas("vol"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("replicas on %v when the drain is over", got)
	}
}

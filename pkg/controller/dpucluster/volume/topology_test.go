package volume

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// racks are three DPUs in two racks, and one without the driver.
func racks() []dpu {
	node := func(name, rack string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack, corev1.LabelHostname: name}}}
	}
	has := func(name string) storagev1.CSINode {
		return storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "racked", TopologyKeys: []string{"rack", corev1.LabelHostname}}, {Name: "everywhere"},
		}}}
	}
	return dpusOf(
		[]corev1.Node{node("d3", "2"), node("d1", "1"), node("d2", "1"), node("bare", "1")},
		[]storagev1.CSINode{has("d1"), has("d2"), has("d3")},
	)
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func affinity(terms ...[]corev1.NodeSelectorRequirement) *corev1.VolumeNodeAffinity {
	out := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
	for _, t := range terms {
		out.Required.NodeSelectorTerms = append(out.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
	}
	return out
}

type all = []corev1.NodeSelectorRequirement

func TestPlacesOf(t *testing.T) {
	byName := func(names ...string) (out []map[string]string) {
		for _, n := range names {
			out = append(out, map[string]string{"storage.moor.dev/dpu-name": n})
		}
		return out
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = "1"
	}
	for name, tc := range map[string]struct {
		affinity *corev1.VolumeNodeAffinity
		want     []map[string]string
	}{
		"none":                       {nil, nil},
		"nothing required":           {&corev1.VolumeNodeAffinity{}, nil},
		"one place":                  {affinity(all{in("rack", "1")}), []map[string]string{{"rack": "1"}}},
		"several values":             {affinity(all{in("rack", "1", "9")}), []map[string]string{{"rack": "1"}, {"rack": "9"}}},
		"several terms":              {affinity(all{in("rack", "1")}, all{in("rack", "2")}), []map[string]string{{"rack": "1"}, {"rack": "2"}}},
		"a key twice":                {affinity(all{in("rack", "1", "2"), in("rack", "2", "3")}), []map[string]string{{"rack": "2"}}},
		"a machine":                  {affinity(all{in(corev1.LabelHostname, "d2")}), byName("d2")},
		"a label that none tells of": {affinity(all{in("rack", "1"), {Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}}), byName("bare", "d1", "d2")},
		"not there":                  {affinity(all{{Key: "rack", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"1"}}}), byName("d3")},
		"too many places":            {affinity(all{in("rack", many...)}), byName("bare", "d1", "d2")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placesOf(tc.affinity, racks())
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	if got, err := placesOf(affinity(all{in("zone", "x")}), racks()); !isUnreachable(err) {
		t.Errorf("no node is there: %v, %v", got, err)
	}
}

func TestBest(t *testing.T) {
	rack := func(v ...string) (out []map[string]string) {
		for _, v := range v {
			out = append(out, map[string]string{"rack": v})
		}
		return out
	}
	allowed := func(v ...string) []corev1.TopologySelectorTerm {
		return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "rack", Values: v}}}}
	}
	for name, tc := range map[string]struct {
		constraints constraints
		want        []string
	}{
		"anywhere":                        {constraints{driver: "racked"}, []string{"d1", "d2", "d3"}},
		"a driver that is nowhere":        {constraints{driver: "other"}, []string{"bare", "d1", "d2", "d3"}},
		"where it is wanted":              {constraints{driver: "racked", wanted: rack("2")}, []string{"d3"}},
		"where it is wanted most":         {constraints{driver: "racked", wanted: rack("7", "1", "2")}, []string{"d1", "d2"}},
		"nowhere":                         {constraints{driver: "racked", wanted: rack("7")}, nil},
		"a DPU by its name":               {constraints{driver: "racked", wanted: []map[string]string{{"rack": "1", "storage.moor.dev/dpu-name": "d2"}}}, []string{"d2"}},
		"a DPU without the driver":        {constraints{driver: "racked", wanted: []map[string]string{{"storage.moor.dev/dpu-name": "bare"}}}, nil},
		"where the class allows":          {constraints{driver: "racked", allowed: allowed("2"), wanted: rack("1", "2")}, []string{"d3"}},
		"nowhere that the class allows":   {constraints{driver: "racked", allowed: allowed("2"), wanted: rack("1")}, nil},
		"where its source is":             {constraints{driver: "racked", source: rack("2")}, []string{"d3"}},
		"nowhere that its source is":      {constraints{driver: "racked", source: rack("2"), wanted: rack("1")}, nil},
		"where both are, though not best": {constraints{driver: "racked", source: rack("2"), wanted: rack("1", "2")}, []string{"d3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range bestNodes(racks(), tc.constraints) {
				got = append(got, d.node.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	if !topologyAware(racks(), "racked") || topologyAware(racks(), "everywhere") || topologyAware(racks(), "other") {
		t.Error("who makes a difference between DPUs is wrong")
	}
}

func TestUnreachable(t *testing.T) {
	err := errors.Join(unreachablef("not %s", "here"), nil)
	if !isUnreachable(err) || isUnreachable(errors.New("x")) || isUnreachable(nil) {
		t.Error("which error means it is wrong")
	}
}

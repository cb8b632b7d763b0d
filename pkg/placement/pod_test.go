package placement

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func healthy(name string) Node { return Node{Name: name, Free: Free{4, 4, Unknown}} }

func volume(id string, copies ...Copy) Volume {
	return Volume{ID: id, Function: VF, Copies: copies}
}

func TestScore(t *testing.T) {
	on := func(w Warmth) Copy { return Copy{"n", w} }
	for name, test := range map[string]struct {
		volumes []Volume
		node    Node
		want    int
	}{
		"one attached":                       {[]Volume{volume("a", on(Attached))}, healthy("n"), 10},
		"one pre-emulated":                   {[]Volume{volume("a", on(PreEmulated))}, healthy("n"), 7},
		"one storage-attached":               {[]Volume{volume("a", on(StorageAttached))}, healthy("n"), 3},
		"cold":                               {[]Volume{volume("a")}, healthy("n"), 0},
		"cold copy":                          {[]Volume{volume("a", on(Cold))}, healthy("n"), 0},
		"warm elsewhere":                     {[]Volume{volume("a", Copy{"m", Attached})}, healthy("n"), 0},
		"both attached":                      {[]Volume{volume("a", on(Attached)), volume("b", on(Attached))}, healthy("n"), 10},
		"one of two attached":                {[]Volume{volume("a", on(Attached)), volume("b")}, healthy("n"), 5},
		"attached and pre-emulated":          {[]Volume{volume("a", on(Attached)), volume("b", on(PreEmulated))}, healthy("n"), 8},
		"a little of many is still not zero": {[]Volume{volume("a", on(StorageAttached)), volume("b"), volume("c"), volume("d"), volume("e")}, Node{Name: "n", Free: UnknownFree()}, 1},
		"the warmest copy of a volume":       {[]Volume{volume("a", on(StorageAttached), on(Attached), on(PreEmulated))}, healthy("n"), 10},
		"DPU in trouble":                     {[]Volume{volume("a", on(Attached))}, Node{Name: "n", Trouble: "dead"}, 0},
		"doubt":                              {[]Volume{volume("a", on(Attached))}, Node{Name: "n", Doubt: "silent"}, 0},
		"no DPU":                             {[]Volume{volume("a", on(Attached))}, Node{Name: "n", NoDPU: "none"}, 0},
		"no function for the second":         {[]Volume{volume("a", on(Attached)), volume("b")}, Node{Name: "n", Free: Free{9, 0, 9}}, 0},
		"no volumes":                         {nil, healthy("n"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewPod(test.volumes).Score(&test.node); got != test.want {
				t.Errorf("score %d, want %d", got, test.want)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	full := Node{Name: "n", Free: Free{0, 0, 0}}
	for name, test := range map[string]struct {
		volumes []Volume
		node    Node
		words   string
		final   bool
	}{
		"no volumes need nothing":            {nil, Node{Name: "n", NoDPU: "none"}, "", false},
		"healthy":                            {[]Volume{volume("a")}, healthy("n"), "", false},
		"no DPU":                             {[]Volume{volume("a")}, Node{Name: "n", NoDPU: "no DPU here"}, "no DPU here", true},
		"trouble":                            {[]Volume{volume("a")}, Node{Name: "n", Trouble: "SNAP is silent"}, "SNAP is silent", true},
		"full":                               {[]Volume{volume("a")}, full, "0 vf functions free, and the pod's volumes need 1 more", false},
		"other kind is full":                 {[]Volume{volume("a")}, Node{Name: "n", Free: Free{0, 1, 0}}, "", false},
		"full, but attached":                 {[]Volume{volume("a", Copy{"n", Attached})}, full, "", false},
		"full, but pre-emulated":             {[]Volume{volume("a", Copy{"n", PreEmulated})}, full, "", false},
		"full, storage-attached holds none":  {[]Volume{volume("a", Copy{"n", StorageAttached})}, full, "need 1 more", false},
		"full, attached elsewhere":           {[]Volume{volume("a", Copy{"m", Attached})}, full, "need 1 more", false},
		"too few for all volumes together":   {[]Volume{volume("a"), volume("b")}, Node{Name: "n", Free: Free{9, 1, 9}}, "1 vf functions free, and the pod's volumes need 2 more", false},
		"enough for those that are not warm": {[]Volume{volume("a", Copy{"n", Attached}), volume("b")}, Node{Name: "n", Free: Free{0, 1, 0}}, "", false},
		"doubt does not refuse":              {[]Volume{volume("a")}, Node{Name: "n", Doubt: "silent", Free: Free{4, 4, 4}}, "", false},
		"not counted":                        {[]Volume{volume("a")}, Node{Name: "n", Free: UnknownFree()}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewPod(test.volumes).Refuse(&test.node)
			if got.Refused() != (test.words != "") || !strings.Contains(got.Reason, test.words) || got.Final != test.final {
				t.Errorf("got %+v, want words %q, final %v", got, test.words, test.final)
			}
		})
	}
}

// TestLost: which lost paths of a DPU concern the volumes of a pod.
func TestLost(t *testing.T) {
	of := func(id, vendor string) Volume { return Volume{ID: id, Vendor: vendor, Function: VF} }
	lost := func(paths ...LostPath) *Lost { return &Lost{DPU: "dpu-1", Paths: paths, All: true} }
	one := func(paths ...LostPath) *Lost { return &Lost{DPU: "dpu-1", Paths: paths} }
	data := LostPath{Volume: "data", Vendor: "x", Message: "no path"}
	for name, test := range map[string]struct {
		volumes []Volume
		lost    *Lost
		want    string
	}{
		"none":                       {[]Volume{of("data", "x")}, nil, ""},
		"its own":                    {[]Volume{of("data", "x")}, lost(data), "DPU dpu-1 has lost its way to the storage of volume data: no path"},
		"its own, no vendor known":   {[]Volume{of("data", "")}, lost(LostPath{Volume: "data"}), "DPU dpu-1 has lost its way to the storage of volume data"},
		"the vendor's":               {[]Volume{of("log", "x")}, lost(data), `DPU dpu-1 has lost its way to the storage of vendor "x" (volume data: no path)`},
		"the vendor's, without more": {[]Volume{of("log", "x")}, lost(LostPath{Volume: "data", Vendor: "x"}), `DPU dpu-1 has lost its way to the storage of vendor "x" (volume data)`},
		"its own, others are well":   {[]Volume{of("data", "x")}, one(data), "DPU dpu-1 has lost its way to the storage of volume data: no path"},
		"one volume of its vendor's": {[]Volume{of("log", "x")}, one(data), ""},
		"another vendor's":           {[]Volume{of("log", "y")}, lost(data), ""},
		"vendors are not known":      {[]Volume{of("log", "")}, lost(LostPath{Volume: "data"}), ""},
		"its own vendor is not":      {[]Volume{of("log", "")}, lost(data), ""},
		"of the second volume":       {[]Volume{of("log", "y"), of("data", "x")}, lost(data), "DPU dpu-1 has lost its way to the storage of volume data: no path"},
		"its own is the better reason": {
			[]Volume{of("log", "x")},
			lost(data, LostPath{Volume: "log", Vendor: "x", Message: "timeout"}),
			"DPU dpu-1 has lost its way to the storage of volume log: timeout",
		},
		"in whatever order": {
			[]Volume{of("log", "x")},
			lost(LostPath{Volume: "e", Vendor: "x"}, data, LostPath{Volume: "f", Vendor: "x"}),
			`DPU dpu-1 has lost its way to the storage of vendor "x" (volume data: no path)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := healthy("n")
			n.Lost = test.lost
			for i := range test.volumes {
				test.volumes[i].Copies = []Copy{{"n", PreEmulated}}
			}
			p := NewPod(test.volumes)
			if diff := cmp.Diff(Refusal{Reason: test.want, Final: test.want != ""}, p.Refuse(&n)); diff != "" {
				t.Error(diff)
			}
			if near := p.Near(&n); near != (test.want == "") || near != (p.Score(&n) > 0) {
				t.Errorf("near %t, score %d", near, p.Score(&n))
			}
		})
	}
}

func TestNear(t *testing.T) {
	on := func(w Warmth) Copy { return Copy{"n", w} }
	for name, test := range map[string]struct {
		volumes []Volume
		node    Node
		want    bool
	}{
		"attached":                     {[]Volume{volume("a", on(Attached))}, healthy("n"), true},
		"pre-emulated":                 {[]Volume{volume("a", on(PreEmulated))}, healthy("n"), true},
		"one of two":                   {[]Volume{volume("a"), volume("b", on(PreEmulated))}, healthy("n"), true},
		"one of many":                  {[]Volume{volume("a", on(PreEmulated)), volume("b"), volume("c"), volume("d")}, healthy("n"), true},
		"only the storage is attached": {[]Volume{volume("a", on(StorageAttached))}, healthy("n"), false},
		"cold":                         {[]Volume{volume("a")}, healthy("n"), false},
		"elsewhere":                    {[]Volume{volume("a", Copy{"m", Attached})}, healthy("n"), false},
		"DPU in trouble":               {[]Volume{volume("a", on(Attached))}, Node{Name: "n", Trouble: "dead"}, false},
		"doubt":                        {[]Volume{volume("a", on(Attached))}, Node{Name: "n", Doubt: "silent"}, false},
		"no DPU":                       {[]Volume{volume("a", on(Attached))}, Node{Name: "n", NoDPU: "none"}, false},
		"no function for the second":   {[]Volume{volume("a", on(Attached)), volume("b")}, Node{Name: "n", Free: Free{9, 0, 9}}, false},
		"its own function is enough":   {[]Volume{volume("a", on(PreEmulated))}, Node{Name: "n", Free: Free{0, 0, 0}}, true},
		"no volumes":                   {nil, healthy("n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewPod(test.volumes).Near(&test.node); got != test.want {
				t.Errorf("near %t, want %t", got, test.want)
			}
		})
	}
}

func TestWarm(t *testing.T) {
	p := NewPod([]Volume{volume("a", Copy{"n1", Attached}, Copy{"n2", Cold}), volume("b", Copy{"n3", StorageAttached}, Copy{"n1", PreEmulated})})
	got := slices.Sorted(p.Warm())
	if diff := cmp.Diff([]string{"n1", "n3"}, got); diff != "" {
		t.Error(diff)
	}
	if p.WarmNodes() != 2 || !p.IsWarm("n3") || p.IsWarm("n2") {
		t.Errorf("%d warm nodes, n3 %v, n2 %v", p.WarmNodes(), p.IsWarm("n3"), p.IsWarm("n2"))
	}
	for range p.Warm() {
		break
	}
}

// random worlds for the properties below.
type world struct {
	volumes []Volume
	nodes   []Node
}

func randomWorld(r *rand.Rand) world {
	var w world
	names := []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12"}
	for _, name := range names[:1+r.IntN(len(names))] {
		n := Node{Name: name, Domain: string(rune('a' + r.IntN(3)))}
		for kind := range n.Free {
			n.Free[kind] = r.IntN(6) - 1
		}
		switch r.IntN(8) {
		case 0:
			n.Trouble = "in trouble"
		case 1:
			n.NoDPU = "no DPU"
		case 2:
			n.Doubt = "in doubt"
		case 3:
			n.Lost = &Lost{All: r.IntN(2) == 0, Paths: []LostPath{{Volume: string(rune('A' + r.IntN(9))), Vendor: []string{"", "x", "y"}[r.IntN(3)]}}}
		}
		w.nodes = append(w.nodes, n)
	}
	for i := range 1 + r.IntN(5) {
		v := Volume{ID: string(rune('A' + i)), Vendor: []string{"", "x", "y", "z"}[r.IntN(4)], Function: Function(r.IntN(kinds))}
		for range r.IntN(12) {
			v.Copies = append(v.Copies, Copy{w.nodes[r.IntN(len(w.nodes))].Name, Warmth(r.IntN(degrees))})
		}
		w.volumes = append(w.volumes, v)
	}
	return w
}

func (w world) shuffled(r *rand.Rand) world {
	out := world{volumes: slices.Clone(w.volumes), nodes: slices.Clone(w.nodes)}
	for i := range out.volumes {
		out.volumes[i].Copies = slices.Clone(out.volumes[i].Copies)
		c := out.volumes[i].Copies
		r.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
	}
	r.Shuffle(len(out.volumes), func(i, j int) { out.volumes[i], out.volumes[j] = out.volumes[j], out.volumes[i] })
	r.Shuffle(len(out.nodes), func(i, j int) { out.nodes[i], out.nodes[j] = out.nodes[j], out.nodes[i] })
	return out
}

func (w world) scores() map[string]int {
	p, out := NewPod(w.volumes), map[string]int{}
	for i := range w.nodes {
		out[w.nodes[i].Name] = p.Score(&w.nodes[i])
	}
	return out
}

// FuzzPod holds, in random worlds, the properties of scores and refusals.
func FuzzPod(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		before := w.scores()
		if diff := cmp.Diff(before, w.shuffled(r).scores()); diff != "" {
			t.Errorf("the order of the input matters: %s", diff)
		}
		p := NewPod(w.volumes)
		for i := range w.nodes {
			n := &w.nodes[i]
			score, refused := before[n.Name], p.Refuse(n).Refused()
			if score < 0 || score > MaxScore {
				t.Errorf("score %d of %s is out of bounds", score, n.Name)
			}
			if (score > 0) != (p.IsWarm(n.Name) && !refused && n.Doubt == "") {
				t.Errorf("score %d of %s: warm %v, refused %v", score, n.Name, p.IsWarm(n.Name), refused)
			}
			if refused && (n.Trouble != "" || n.NoDPU != "" || n.Lost.words(w.volumes...) != "") != p.Refuse(n).Final {
				t.Errorf("%s: %+v is wrongly final or not", n.Name, p.Refuse(n))
			}
		}
		checkMonotone(t, r, w, before)
	})
}

// checkMonotone makes one copy warmer: its node must not score less, and must
// not be refused if it was not.
func checkMonotone(t *testing.T, r *rand.Rand, w world, before map[string]int) {
	v := &w.volumes[r.IntN(len(w.volumes))]
	node := &w.nodes[r.IntN(len(w.nodes))]
	refused := NewPod(w.volumes).Refuse(node).Refused()
	v.Copies = append(slices.Clone(v.Copies), Copy{node.Name, Warmth(r.IntN(degrees))})
	after := NewPod(w.volumes)
	if got := after.Score(node); got < before[node.Name] {
		t.Errorf("node %s scored %d, and scores %d after volume %s became warmer there", node.Name, before[node.Name], got, v.ID)
	}
	if !refused && after.Refuse(node).Refused() {
		t.Errorf("node %s is refused after volume %s became warmer there", node.Name, v.ID)
	}
}

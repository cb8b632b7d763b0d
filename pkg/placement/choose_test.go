package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// in is a healthy node in a domain.
func in(name, domain string) Node {
	n := healthy(name)
	n.Domain = domain
	return n
}

func TestChoose(t *testing.T) {
	three := []Node{in("n1", ""), in("n2", ""), in("n3", "")}
	zones := []Node{in("a1", "a"), in("a2", "a"), in("b1", "b"), in("b2", "b")}
	base := Request{Volume: Volume{ID: "v", Function: VF}, Replicas: 1, MaxShares: 2, Primary: "n1", Nodes: three}
	with := func(change func(*Request)) Request { r := base; change(&r); return r }
	for name, test := range map[string]struct {
		request Request
		keep    []string
		add     []string
		addOf   []string // one of these
		drop    []string // "node: words"
		refused []string
		missing int
		// unsuited are kept all the same.
		unsuited []string
	}{
		"one of the others":    {request: base, addOf: []string{"n2", "n3"}},
		"none wanted":          {request: with(func(r *Request) { r.Replicas = 0 })},
		"present stays":        {request: with(func(r *Request) { r.Present = []string{"n3"} }), keep: []string{"n3"}},
		"present stays, twice": {request: with(func(r *Request) { r.Present = []string{"n2", "n2"} }), keep: []string{"n2"}},
		"the primary's own replica is promoted, not dropped": {request: with(func(r *Request) { r.Present = []string{"n1"} }), addOf: []string{"n2", "n3"}},
		"never more than the shares":                         {request: with(func(r *Request) { r.Replicas = 9 }), addOf: []string{"n2", "n3"}},
		"a share is kept for the primary that is not there": {
			request: with(func(r *Request) { r.Primary, r.Replicas = "", 9 }), addOf: []string{"n1", "n2", "n3"},
		},
		"node gone": {
			request: with(func(r *Request) { r.Present, r.Nodes = []string{"n3"}, three[:2] }),
			add:     []string{"n2"}, drop: []string{"n3: the node is gone"},
		},
		"DPU in trouble": {
			request: with(func(r *Request) {
				r.Present, r.Nodes = []string{"n3"}, []Node{three[0], three[1], {Name: "n3", Trouble: "dead"}}
			}),
			add: []string{"n2"}, drop: []string{"n3: dead"},
		},
		"doubt keeps, and adds nothing": {
			request: with(func(r *Request) {
				r.Present, r.Replicas, r.MaxShares = []string{"n3"}, 2, 3
				r.Nodes = []Node{three[0], {Name: "n2", Doubt: "silent"}, {Name: "n3", Doubt: "silent"}}
			}),
			keep: []string{"n3"}, refused: []string{"n2: silent"}, missing: 1,
		},
		"lost paths of its vendor keep, and add nothing": {
			request: with(func(r *Request) {
				r.Volume.Vendor, r.Present, r.Replicas, r.MaxShares = "x", []string{"n3"}, 2, 3
				lost := &Lost{DPU: "dpu", All: true, Paths: []LostPath{{Volume: "w", Vendor: "x"}}}
				r.Nodes = []Node{three[0], {Name: "n2", Lost: lost, Free: Free{9, 9, 9}}, {Name: "n3", Lost: lost}}
			}),
			keep: []string{"n3"}, refused: []string{`n2: DPU dpu has lost its way to the storage of vendor "x" (volume w)`}, missing: 1,
		},
		"lost paths of another vendor": {
			request: with(func(r *Request) {
				r.Volume.Vendor = "y"
				r.Nodes = []Node{three[0], {Name: "n2", Lost: &Lost{All: true, Paths: []LostPath{{Volume: "w", Vendor: "x"}}}, Free: Free{9, 9, 9}}}
			}), add: []string{"n2"},
		},
		"no longer fits": {
			request: with(func(r *Request) {
				r.Present = []string{"n3"}
				r.Fits = func(n string) (bool, string) { return n != "n3", "tainted" }
			}),
			add: []string{"n2"}, drop: []string{"n3: tainted"},
		},
		"fewer wanted": {
			request: with(func(r *Request) { r.Present, r.Replicas = []string{"n3"}, 0 }),
			drop:    []string{"n3: 0 replicas are wanted and others are better placed"},
		},
		"present stays though its DPU is full": {
			request: with(func(r *Request) {
				r.Present, r.Nodes = []string{"n3"}, []Node{three[0], three[1], {Name: "n3", Free: Free{0, 0, 0}}}
			}), keep: []string{"n3"},
		},
		"the reserve is not touched": {
			request: with(func(r *Request) { r.Reserve = 4 }), missing: 1,
			refused: []string{
				"n2: the DPU has 4 vf functions free, and 4 are kept for primaries",
				"n3: the DPU has 4 vf functions free, and 4 are kept for primaries",
			},
		},
		"not counted is not refused": {
			request: with(func(r *Request) { r.Nodes, r.Reserve = []Node{three[0], {Name: "n2", Free: UnknownFree()}}, 4 }), add: []string{"n2"},
		},
		"no node fits": {
			request: with(func(r *Request) { r.Fits = func(string) (bool, string) { return false, "" } }), missing: 1,
			refused: []string{"n2: the pod could not run there", "n3: the pod could not run there"},
		},
		"no DPU anywhere else": {
			request: with(func(r *Request) { r.Nodes = []Node{three[0], {Name: "n2", NoDPU: "no DPU"}} }), missing: 1, refused: []string{"n2: no DPU"},
		},
		"another domain than the primary's": {
			request: with(func(r *Request) { r.Nodes, r.Primary = zones, "a1" }), addOf: []string{"b1", "b2"},
		},
		"with the pod's other volumes": {
			request: with(func(r *Request) { r.Companions = []Volume{volume("w", Copy{"n3", PreEmulated}, Copy{"n1", Attached})} }), add: []string{"n3"},
		},
		"never new where the pod could not run now": {
			request: with(func(r *Request) { r.Nodes = []Node{three[0], {Name: "n2", Unsuited: "crowded", Free: Free{9, 9, 9}}} }),
			missing: 1, refused: []string{"n2: crowded"},
		},
		"away from where the pod could not run now, to where it could": {
			request: with(func(r *Request) {
				r.Present, r.Nodes = []string{"n3"}, []Node{three[0], three[1], {Name: "n3", Unsuited: "crowded"}}
			}),
			add: []string{"n2"}, drop: []string{"n3: 1 replicas are wanted and others are better placed"},
		},
		"it stays where the pod could not run now if there is nothing better": {
			request: with(func(r *Request) {
				r.Present, r.Nodes = []string{"n3"}, []Node{three[0], {Name: "n2", Doubt: "silent"}, {Name: "n3", Unsuited: "crowded"}}
			}),
			keep: []string{"n3"}, unsuited: []string{"n3: crowded"},
		},
		// What was weak in earlier schedulers of replicas, each a row.
		"the only node with room is the primaries'": { // replicas ate the room of primaries
			request: with(func(r *Request) {
				r.Reserve, r.Nodes = 1, []Node{three[0], {Name: "n2", Free: Free{0, 1, 0}}, {Name: "n3", Free: Free{0, 0, 0}}}
			}), missing: 1,
			refused: []string{
				"n2: the DPU has 1 vf functions free, and 1 are kept for primaries", "n3: the DPU has 0 vf functions free, and 1 are kept for primaries",
			},
		},
		"all replicas stay while there is no primary": { // a role change led to the loss of all replicas
			request: with(func(r *Request) {
				r.Primary, r.Replicas, r.MaxShares, r.Present = "", 2, 3, []string{"n2", "n3"}
			}), keep: []string{"n2", "n3"},
		},
		"made already is not made again": { // replicas were created twice and more
			request: with(func(r *Request) { r.Present, r.Replicas, r.MaxShares = []string{"n2", "n3", "n2"}, 2, 3 }), keep: []string{"n2", "n3"},
		},
		"one full node does not fail the others": { // a batch above a node's limit failed as a whole
			request: with(func(r *Request) {
				r.Replicas, r.MaxShares, r.Nodes = 2, 3, []Node{three[0], three[1], {Name: "n3", Free: Free{0, 0, 0}}}
			}), add: []string{"n2"}, missing: 1, refused: []string{"n3: the DPU has 0 vf functions free, and 0 are kept for primaries"},
		},
		"a node with a dead DPU is none, whatever is free there": { // no scorer asked for a node's health
			request: with(func(r *Request) {
				r.Nodes = []Node{three[0], {Name: "n2", Trouble: "DPUAlive is False", Free: Free{99, 99, 99}}}
			}), missing: 1, refused: []string{"n2: DPUAlive is False"},
		},
		"another zone although the own one has more room": { // topology came after free slots
			request: with(func(r *Request) {
				r.Primary = "a1"
				r.Nodes = []Node{in("a1", "a"), {Name: "a2", Domain: "a", Free: Free{0, 64, 0}}, {Name: "b1", Domain: "b", Free: Free{0, 2, 0}}}
			}), add: []string{"b1"},
		},
		"where there is clearly more room": {
			request: with(func(r *Request) {
				r.Nodes = []Node{three[0], {Name: "n2", Free: Free{0, 2, 0}}, {Name: "n3", Free: Free{0, 64, 0}}}
			}), add: []string{"n3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Choose(test.request)
			if test.addOf != nil {
				if len(got.Add) != 1 || !slices.Contains(test.addOf, got.Add[0]) {
					t.Errorf("adds %v, want one of %v", got.Add, test.addOf)
				}
				test.add = got.Add
			}
			slices.Sort(got.Keep)
			want := []any{test.keep, test.add, test.drop, test.refused, test.missing, test.unsuited}
			if diff := cmp.Diff(want, []any{got.Keep, got.Add, words(got.Drop), words(got.Refused), got.Missing, words(got.Unsuited)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func words(refused []Refused) []string {
	var out []string
	for _, r := range refused {
		out = append(out, r.Node+": "+r.Reason)
	}
	return out
}

func TestChooseSpreadsOverDomains(t *testing.T) {
	var nodes []Node
	for _, domain := range []string{"a", "b", "c"} {
		for i := range 4 {
			nodes = append(nodes, in(fmt.Sprint(domain, i), domain))
		}
	}
	got := Choose(Request{Volume: Volume{ID: "v", Function: VF}, Replicas: 5, MaxShares: 6, Primary: "a0", Nodes: nodes})
	count := map[byte]int{'a': 1}
	for _, n := range got.Add {
		count[n[0]]++
	}
	if diff := cmp.Diff(map[byte]int{'a': 2, 'b': 2, 'c': 2}, count); diff != "" {
		t.Errorf("chose %v: %s", got.Add, diff)
	}
}

// Volumes of one pod, each placed for itself and at the same moment, meet on
// the same node; those of different pods scatter.
func TestChooseMeetsAndScatters(t *testing.T) {
	var nodes []Node
	for i := range 10 {
		nodes = append(nodes, in(fmt.Sprint("n", i), ""))
	}
	of := func(group, id string) string {
		r := Request{Volume: Volume{ID: id, Function: VF}, Group: group, Replicas: 1, MaxShares: 2, Primary: "n0", Nodes: nodes}
		return Choose(r).Add[0]
	}
	taken := map[string]int{}
	for pod := range 90 {
		group := fmt.Sprint("pod-", pod)
		first, second := of(group, fmt.Sprint("x", pod)), of(group, fmt.Sprint("y", pod))
		if first != second {
			t.Errorf("volumes of %s are placed on %s and %s", group, first, second)
		}
		taken[first]++
	}
	for _, n := range nodes[1:] {
		if c := taken[n.Name]; c < 3 || c > 25 {
			t.Errorf("%s has %d of 90 replicas on 9 nodes: %v", n.Name, c, taken)
		}
	}
}

func randomRequest(r *rand.Rand) Request {
	w := randomWorld(r)
	name := func() string { return w.nodes[r.IntN(len(w.nodes))].Name }
	q := Request{
		Volume: w.volumes[0], Companions: w.volumes[1:], Nodes: w.nodes,
		Replicas: r.IntN(6) - 1, MaxShares: r.IntN(7) - 1, Reserve: r.IntN(4) - 1,
	}
	if r.IntN(4) > 0 {
		q.Primary = name()
	}
	for range r.IntN(4) {
		q.Present = append(q.Present, name())
	}
	if r.IntN(5) == 0 {
		q.Present = append(q.Present, "gone")
	}
	q.Nodes = slices.Clone(q.Nodes)
	for i := range q.Nodes {
		if r.IntN(4) == 0 {
			q.Nodes[i].Unsuited = "crowded"
		}
	}
	mask := r.Uint64() | r.Uint64()
	q.Fits = func(node string) (bool, string) {
		return mask>>(len(node)*7+int(node[len(node)-1]))%64&1 == 1, "does not fit"
	}
	return q
}

// FuzzChoose holds, for random requests, what Choose promises.
func FuzzChoose(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		q := randomRequest(r)
		got := Choose(q)
		checkOrder(t, r, q, got)
		checkBounds(t, q, got)
		checkAdded(t, q, got)
		checkSettled(t, q, got)
		checkUnmoved(t, q, got)
	})
}

func checkOrder(t *testing.T, r *rand.Rand, q Request, got Placement) {
	w := world{volumes: q.Companions, nodes: q.Nodes}.shuffled(r)
	q.Companions, q.Nodes, q.Present = w.volumes, w.nodes, slices.Clone(q.Present)
	r.Shuffle(len(q.Present), func(i, j int) { q.Present[i], q.Present[j] = q.Present[j], q.Present[i] })
	if diff := cmp.Diff(got, Choose(q)); diff != "" {
		t.Errorf("the order of the input matters: %s", diff)
	}
}

func checkBounds(t *testing.T, q Request, got Placement) {
	have := slices.Concat(got.Keep, got.Add)
	if len(have) > max(0, q.MaxShares-1) || len(have) > max(0, q.Replicas) {
		t.Errorf("%d replicas, although %d are wanted and %d shares allowed", len(have), q.Replicas, q.MaxShares)
	}
	if got.Missing != max(0, min(q.Replicas, q.MaxShares-1))-len(have) {
		t.Errorf("%d missing with %v of %d", got.Missing, have, q.Replicas)
	}
	if got.Missing == 0 && got.Refused != nil {
		t.Errorf("nodes are refused although nothing is missing: %v", got.Refused)
	}
	if len(unique(have)) != len(have) || slices.Contains(have, q.Primary) && q.Primary != "" {
		t.Errorf("replicas on %v with the primary on %q", have, q.Primary)
	}
	for _, name := range unique(q.Present) {
		kept := slices.Contains(got.Keep, name)
		dropped := slices.ContainsFunc(got.Drop, func(r Refused) bool { return r.Node == name && r.Reason != "" })
		if name == q.Primary && (kept || dropped) || name != q.Primary && kept == dropped {
			t.Errorf("present replica on %s (primary on %q): kept %v, dropped %v", name, q.Primary, kept, dropped)
		}
	}
	for _, d := range got.Drop {
		if strings.Contains(d.Reason, "others are better placed") && len(got.Keep) < min(q.Replicas, q.MaxShares-1) {
			t.Errorf("%s is dropped for others, and only %v are kept", d.Node, got.Keep)
		}
	}
}

func checkAdded(t *testing.T, q Request, got Placement) {
	for _, name := range slices.Concat(got.Keep, got.Add) {
		n := q.Nodes[slices.IndexFunc(q.Nodes, func(n Node) bool { return n.Name == name })]
		fits, _ := q.Fits(name)
		if n.Trouble != "" || n.NoDPU != "" || !fits {
			t.Errorf("replica on %+v, fits %v", n, fits)
		}
		free := n.Free[q.Volume.Function]
		if slices.Contains(got.Add, name) && (slices.Contains(q.Present, name) || n.Doubt != "" || n.Unsuited != "" || n.Lost.words(q.Volume) != "" || free != Unknown && free <= max(0, q.Reserve)) {
			t.Errorf("%s is added with %d free, reserve %d, present %v", name, free, q.Reserve, q.Present)
		}
	}
	if got.Missing > 0 && len(got.Refused)+len(got.Add)+len(unique(append([]string{q.Primary}, q.Present...))) < len(q.Nodes) {
		t.Errorf("%d missing, and some node was neither taken nor refused: %+v", got.Missing, got)
	}
}

// checkSettled carries the answer out and asks again: nothing may change.
func checkSettled(t *testing.T, q Request, got Placement) {
	q.Present = slices.Concat(got.Keep, got.Add)
	again := Choose(q)
	slices.Sort(q.Present)
	slices.Sort(again.Keep)
	if !slices.Equal(again.Keep, q.Present) || len(again.Add)+len(again.Drop) > 0 {
		t.Errorf("the answer %+v, carried out, becomes %+v", got, again)
	}
}

// checkUnmoved carries the answer out and adds a node better than all: it may
// take what is missing, or what is not suited where it is, and moves nothing else.
func checkUnmoved(t *testing.T, q Request, got Placement) {
	q.Present = slices.Concat(got.Keep, got.Add)
	q.Nodes = append(slices.Clone(q.Nodes), Node{Name: "new", Domain: "new", Free: Free{99, 99, 99}})
	fits := q.Fits
	q.Fits = func(node string) (bool, string) {
		if node == "new" {
			return true, ""
		}
		return fits(node)
	}
	again := Choose(q)
	for _, d := range again.Drop {
		if !slices.ContainsFunc(got.Unsuited, func(u Refused) bool { return u.Node == d.Node }) {
			t.Errorf("%s is moved (%s) because a node came", d.Node, d.Reason)
		}
	}
	if want := min(1, got.Missing+len(got.Unsuited)); len(again.Add) != want || len(again.Drop) != min(want, max(0, len(got.Unsuited)-got.Missing)) && got.Missing == 0 {
		t.Errorf("the node that came: added %v, dropped %v, with %d missing and %v not suited before", again.Add, again.Drop, got.Missing, got.Unsuited)
	}
}

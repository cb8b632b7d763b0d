package placement

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
)

// Request asks where the replicas of one volume are to be.
type Request struct {
	// Volume to place; its Copies are not read.
	Volume Volume
	// Group makes volumes choose alike where nothing else tells nodes apart:
	// give all volumes of one pod the same. Empty: the volume's ID.
	Group string
	// Replicas wanted beside the primary.
	Replicas int
	// MaxShares is how many nodes, with the primary's, may have the volume.
	// One share is kept for the primary even while there is none.
	MaxShares int
	// Primary is the node of the primary; empty if there is none.
	Primary string
	// Present are the nodes that have a replica now.
	Present []string
	// Nodes that exist, with their health; others are gone.
	Nodes []Node
	// Reserve is how many functions replicas leave free on each DPU, for
	// primaries.
	Reserve int
	// Companions are the other volumes of the same pod: nodes that have those
	// are preferred.
	Companions []Volume
	// Fits says whether the pod could run on a node, and if not, why in
	// words. Nil: everywhere. It must answer the same for the same node.
	Fits func(node string) (bool, string)
}

// Placement is the answer: what to keep, make and remove. All lists are
// sorted: Keep and Add by preference, the others by name.
type Placement struct {
	// Keep are present replicas that are still good.
	Keep []string
	// Add are nodes where a replica is to be made.
	Add []string
	// Unsuited are those of Keep that are kept only because no suited node was
	// found for them, with the reason.
	Unsuited []Refused
	// Drop are present replicas that are to be removed, with the reason. The
	// primary's node is never among them: a replica that a primary landed on
	// is promoted, not removed.
	Drop []Refused
	// Refused are the nodes that were not taken although replicas are missing,
	// with the reason. Empty if none is missing.
	Refused []Refused
	// Missing is how many of the wanted replicas have no node.
	Missing int
}

// Refused is a node and why it was not taken, or not kept.
type Refused struct {
	Node   string
	Reason string
}

// Choose picks the nodes of a volume's replicas. It keeps what is present and
// still good (what is not suited until it finds better), never takes the primary's node nor more than MaxShares-1 nodes,
// and takes a new node only if its DPU is healthy and has not lost its way to the
// volume's storage, Reserve functions stay free, and the pod fits there. Among those it prefers domains with fewer copies,
// then nodes with the pod's other volumes, then those with clearly more
// functions free (a power of two), then the order of a hash of Group and node.
func Choose(r Request) Placement {
	c := newChooser(r)
	want := max(0, min(r.Replicas, r.MaxShares-1))
	var out Placement
	var good, unsuited []*Node
	for _, name := range unique(r.Present) {
		if name == r.Primary {
			continue
		}
		if why := c.notKept(name); why != "" {
			out.Drop = append(out.Drop, Refused{name, why})
			continue
		}
		if n := c.nodes[name]; n.Unsuited != "" {
			unsuited = append(unsuited, n)
		} else {
			good = append(good, n)
		}
	}
	for _, n := range c.take(good, want) {
		out.Keep = append(out.Keep, n.Name)
	}
	c.fill(&out, want)
	c.makeDo(&out, unsuited)
	for _, n := range slices.Concat(good, unsuited) {
		if !slices.Contains(out.Keep, n.Name) {
			out.Drop = append(out.Drop, Refused{n.Name, fmt.Sprintf("%d replicas are wanted and others are better placed", want)})
		}
	}
	byName := func(a, b Refused) int { return cmp.Compare(a.Node, b.Node) }
	slices.SortFunc(out.Drop, byName)
	slices.SortFunc(out.Refused, byName)
	slices.SortFunc(out.Unsuited, byName)
	return out
}

// chooser is a request made ready for being looked up.
type chooser struct {
	Request
	nodes map[string]*Node
	// domains counts the copies in each domain, the primary with them.
	domains map[string]int
	// together counts the companions that a node has.
	together map[string]int
}

func newChooser(r Request) *chooser {
	if r.Group == "" {
		r.Group = r.Volume.ID
	}
	c := &chooser{Request: r, nodes: make(map[string]*Node, len(r.Nodes)), domains: map[string]int{}, together: map[string]int{}}
	for i := range r.Nodes {
		c.nodes[r.Nodes[i].Name] = &r.Nodes[i]
	}
	if n, ok := c.nodes[r.Primary]; ok && r.Primary != "" {
		c.domains[n.Domain]++
	}
	for _, v := range r.Companions {
		var on []string
		for _, copy := range v.Copies {
			on = append(on, copy.Node)
		}
		for _, node := range unique(on) {
			c.together[node]++
		}
	}
	return c
}

// notKept says why a present replica is not good any more; "" if it is. Free
// functions do not matter: it has its own, or is about to.
func (c *chooser) notKept(name string) string {
	n, ok := c.nodes[name]
	if !ok {
		return "the node is gone"
	}
	return c.unfit(n)
}

// unfit says what speaks against a node whether or not it has a replica.
func (c *chooser) unfit(n *Node) string {
	if why := cmp.Or(n.NoDPU, n.Trouble); why != "" {
		return why
	}
	if c.Fits == nil {
		return ""
	}
	if ok, why := c.Fits(n.Name); !ok {
		return cmp.Or(why, "the pod could not run there")
	}
	return ""
}

// refuse says why a node gets no new replica; "" if it may.
func (c *chooser) refuse(n *Node) string {
	if why := cmp.Or(c.unfit(n), n.Doubt, n.Lost.words(c.Volume), n.Unsuited); why != "" {
		return why
	}
	if free := n.Free[c.Volume.Function]; free != Unknown && free-max(0, c.Reserve) < 1 {
		return fmt.Sprintf("the DPU has %d %s functions free, and %d are kept for primaries", free, c.Volume.Function, max(0, c.Reserve))
	}
	return ""
}

// fill adds new nodes until want is reached, or says why it is not.
func (c *chooser) fill(out *Placement, want int) {
	out.Missing = want - len(out.Keep)
	if out.Missing == 0 {
		return
	}
	var able []*Node
	for name, n := range c.nodes {
		if name == c.Primary || slices.Contains(c.Present, name) {
			continue
		}
		if why := c.refuse(n); why != "" {
			out.Refused = append(out.Refused, Refused{name, why})
			continue
		}
		able = append(able, n)
	}
	for _, n := range c.take(able, out.Missing) {
		out.Add = append(out.Add, n.Name)
	}
	out.Missing -= len(out.Add)
	if out.Missing == 0 {
		out.Refused = nil
	}
}

// makeDo keeps replicas where the pod could not run now in place of those that
// found no node: things may change, and what is made need not be made again.
func (c *chooser) makeDo(out *Placement, unsuited []*Node) {
	for _, n := range c.take(unsuited, out.Missing) {
		out.Keep = append(out.Keep, n.Name)
		out.Unsuited = append(out.Unsuited, Refused{n.Name, n.Unsuited})
		out.Missing--
	}
	if out.Missing == 0 {
		out.Refused = nil
	}
}

// take picks up to want nodes one by one, so that each pick counts in its
// domain before the next.
func (c *chooser) take(from []*Node, want int) []*Node {
	ranked := slices.Clone(from)
	slices.SortFunc(ranked, c.compare)
	var out []*Node
	for len(out) < want && len(ranked) > 0 {
		best := 0
		for i, n := range ranked {
			if c.domains[n.Domain] < c.domains[ranked[best].Domain] {
				best = i
			}
		}
		out = append(out, ranked[best])
		c.domains[ranked[best].Domain]++
		ranked = slices.Delete(ranked, best, best+1)
	}
	return out
}

// compare orders nodes of equally crowded domains; the better is the lesser.
func (c *chooser) compare(a, b *Node) int {
	return cmp.Or(
		cmp.Compare(c.together[b.Name], c.together[a.Name]),
		cmp.Compare(c.room(b), c.room(a)),
		cmp.Compare(c.hash(a.Name), c.hash(b.Name)),
		cmp.Compare(a.Name, b.Name),
	)
}

// room is the power of two of the functions left beyond the reserve. It is so
// coarse that nodes much alike are told apart by the hash: otherwise all
// replicas of a moment would crowd on the one node with the most.
func (c *chooser) room(n *Node) int {
	return bits.Len(uint(max(0, n.Free[c.Volume.Function]-max(0, c.Reserve))))
}

func (c *chooser) hash(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.Group))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(node))
	return mix(h.Sum64())
}

// mix spreads the last bytes over the whole hash (the finalizer of
// MurmurHash3): names of nodes often differ in their last letter alone.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func unique(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

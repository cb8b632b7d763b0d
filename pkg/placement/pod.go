package placement

import (
	"fmt"
	"iter"
)

// MaxScore is the best score of a node; the API of kube-scheduler's extenders
// allows 0 to 10.
const MaxScore = 10

// points of one volume at a node, by its warmth there. They only have to rise;
// the gaps say that two pre-emulated volumes are worth more than one attached
// and one cold.
var points = [degrees]int{Cold: 0, StorageAttached: 3, PreEmulated: 7, Attached: MaxScore}

// Pod ranks nodes for all volumes of one pod together. It never changes and
// may be used by many at once.
type Pod struct {
	volumes []Volume
	// need counts the functions that the volumes take on a node where all of
	// them are cold.
	need [kinds]int
	// held is what nodes already have of the volumes.
	held map[string]holding
}

// holding is what one node has of the pod's volumes.
type holding struct {
	points int
	taken  [kinds]int
}

// NewPod prepares the ranking of nodes for a pod with the volumes given, each
// named once; they must not be changed. Its cost is that of reading the volumes' copies.
func NewPod(volumes []Volume) *Pod {
	total := 0
	for i := range volumes {
		total += len(volumes[i].Copies)
	}
	p := &Pod{volumes: volumes, held: make(map[string]holding, total)}
	for i := range volumes {
		p.need[volumes[i].Function]++
		p.hold(&volumes[i])
	}
	return p
}

// hold adds a volume's copies to what nodes have. A volume mostly has so few
// that looking for a second copy on the same node is cheaper than a map.
func (p *Pod) hold(v *Volume) {
	if len(v.Copies) > few {
		best := make(map[string]Warmth, len(v.Copies))
		for _, c := range v.Copies {
			best[c.Node] = max(best[c.Node], c.Warmth)
		}
		for node, warmth := range best {
			p.add(node, warmth, v.Function)
		}
		return
	}
	for i, c := range v.Copies {
		if !warmerElsewhere(v.Copies, i) {
			p.add(c.Node, c.Warmth, v.Function)
		}
	}
}

const few = 8

// warmerElsewhere reports whether another copy on the same node counts in
// place of copy i: a warmer one, or an earlier one as warm.
func warmerElsewhere(copies []Copy, i int) bool {
	for j, c := range copies {
		if j != i && c.Node == copies[i].Node && (c.Warmth > copies[i].Warmth || c.Warmth == copies[i].Warmth && j < i) {
			return true
		}
	}
	return false
}

func (p *Pod) add(node string, warmth Warmth, f Function) {
	if warmth == Cold {
		return
	}
	h := p.held[node]
	h.points += points[warmth]
	if warmth.holdsFunction() {
		h.taken[f]++
	}
	p.held[node] = h
}

// Refusal says why a node cannot serve. The zero value is no refusal.
type Refusal struct {
	// Reason as text; empty if the node can serve.
	Reason string
	// Final is true if no other pod's end on that node would help.
	Final bool
}

// Refused reports whether the node cannot serve.
func (r Refusal) Refused() bool { return r.Reason != "" }

// Refuse says whether a node cannot serve the pod's volumes at all: it has no
// DPU, the DPU is in trouble or has lost its way to the storage of one of them, or
// its functions do not suffice. It does not allocate unless a path is lost or
// functions lack.
func (p *Pod) Refuse(n *Node) Refusal {
	switch {
	case len(p.volumes) == 0:
		return Refusal{}
	case n.NoDPU != "":
		return Refusal{Reason: n.NoDPU, Final: true}
	case n.Trouble != "":
		return Refusal{Reason: n.Trouble, Final: true}
	}
	if why := n.Lost.words(p.volumes...); why != "" {
		return Refusal{Reason: why, Final: true}
	}
	for kind := range kinds {
		if !missing(p.need[kind], n.Free[kind]) {
			continue
		}
		if need := p.need[kind] - p.held[n.Name].taken[kind]; missing(need, n.Free[kind]) {
			return Refusal{Reason: fmt.Sprintf("the DPU has %d %s functions free, and the pod's volumes need %d more",
				n.Free[kind], Function(kind), need)}
		}
	}
	return Refusal{}
}

func missing(need, free int) bool { return free != Unknown && need > 0 && free < need }

// Score is the node's rank from 0 to MaxScore: MaxScore if all volumes are
// attached, proportionally less for fewer or colder ones but at least 1 where
// anything is warm, and 0 where nothing is or the node cannot serve for sure.
func (p *Pod) Score(n *Node) int {
	h, ok := p.held[n.Name]
	if !ok || n.Doubt != "" || p.Refuse(n).Refused() {
		return 0
	}
	return max(1, h.points/len(p.volumes))
}

// Near reports whether one of the volumes has its function on the node, which
// can serve for sure: a replica, or the primary, that stands ready.
func (p *Pod) Near(n *Node) bool {
	return p.held[n.Name].taken != [kinds]int{} && p.Score(n) > 0
}

// Warm yields, in no order, the nodes that have anything of the pod's volumes:
// every other node's score is 0.
func (p *Pod) Warm() iter.Seq[string] {
	return func(yield func(string) bool) {
		for node := range p.held {
			if !yield(node) {
				return
			}
		}
	}
}

// IsWarm reports whether the node has anything of the pod's volumes.
func (p *Pod) IsWarm(node string) bool {
	_, ok := p.held[node]
	return ok
}

// WarmNodes is how many nodes have anything of the pod's volumes.
func (p *Pod) WarmNodes() int { return len(p.held) }

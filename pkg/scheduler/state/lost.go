package state

import (
	"reflect"
	"slices"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/placement"
)

// kinship is what writers know beside the index, so that each lost path in it has the
// vendor of its volume, in whatever order nodes and volumes come: by its vendor a
// lost path speaks for other volumes.
type kinship struct {
	// persistent leads from a volume's handle to the PersistentVolume that names its
	// vendor.
	persistent map[string]string
	// tellers are the nodes whose DPUs tell that the path of a volume is lost, by
	// its handle.
	tellers map[string]map[string]bool
}

func newKinship() kinship {
	return kinship{persistent: map[string]string{}, tellers: map[string]map[string]bool{}}
}

// lostOf are the lost paths that a DPU tells of, their vendors not known yet; nil if
// there are none.
func lostOf(n *moorv1alpha1.DPUStorageNode) *placement.Lost {
	told := n.Status.LostPaths()
	if len(told) == 0 {
		return nil
	}
	out := &placement.Lost{DPU: n.Spec.DPUName, All: n.Status.DPU.AllPathsLost}
	for i := range told {
		out.Paths = append(out.Paths, placement.LostPath{Volume: told[i].Volume, Message: told[i].Message})
	}
	return out
}

// setVolume takes in a PersistentVolume; nil: it is gone, or none of the drivers'. It
// returns the nodes that have a lost path which is of its vendor no more: they may
// serve a pod that they refused.
func (s *Store) setVolume(now *Index, name string, v *persistent) []string {
	old, _ := now.volumes.get(name)
	if v == nil {
		now.volumes, v = drop(now.volumes, name), &persistent{}
	} else {
		now.volumes = put(now.volumes, name, *v)
	}
	if old.handle != v.handle && s.kin.persistent[old.handle] == name {
		delete(s.kin.persistent, old.handle)
	}
	if v.vendor != "" {
		s.kin.persistent[v.handle] = name
	}
	opened := s.renew(now, old.handle)
	s.renew(now, v.handle) // that a vendor is known opens no node
	return opened
}

// renew looks up a volume's vendor for the nodes whose DPUs tell of its path, and
// returns those that had another.
func (s *Store) renew(now *Index, handle string) []string {
	var out []string
	for name := range s.kin.tellers[handle] {
		old, ok := now.nodes.get(name)
		if !ok {
			continue
		}
		n := *old
		n.Lost = &placement.Lost{DPU: old.Lost.DPU, Paths: slices.Clone(old.Lost.Paths), All: old.Lost.All}
		if s.findVendors(now, n.Lost); !reflect.DeepEqual(old, &n) {
			now.nodes = now.nodes.with(name, &n)
			out = append(out, name)
		}
	}
	return out
}

// setNode takes in a node; nil: it is gone. It returns the node if it may serve a
// pod that it refused.
func (s *Store) setNode(now *Index, name string, n *placement.Node) []string {
	old, known := now.nodes.get(name)
	if n == nil {
		now.nodes = drop(now.nodes, name)
		s.retell(name, old, nil)
		return nil
	}
	s.findVendors(now, n.Lost)
	if known && reflect.DeepEqual(old, n) {
		return nil
	}
	now.nodes = now.nodes.with(name, n)
	s.retell(name, old, n)
	if known && !opens(old, n) {
		return nil
	}
	return []string{name}
}

// findVendors sets the vendors of lost paths, as the index knows them.
func (s *Store) findVendors(x *Index, l *placement.Lost) {
	for i := range paths(l) {
		p := &l.Paths[i]
		v, _ := x.volumes.get(s.kin.persistent[p.Volume])
		p.Vendor = ""
		if v.handle == p.Volume {
			p.Vendor = v.vendor
		}
	}
}

// retell notes which paths a node's DPU tells of now.
func (s *Store) retell(name string, old, n *placement.Node) {
	if old != nil {
		for _, p := range paths(old.Lost) {
			if delete(s.kin.tellers[p.Volume], name); len(s.kin.tellers[p.Volume]) == 0 {
				delete(s.kin.tellers, p.Volume)
			}
		}
	}
	if n == nil {
		return
	}
	for _, p := range paths(n.Lost) {
		if s.kin.tellers[p.Volume] == nil {
			s.kin.tellers[p.Volume] = map[string]bool{}
		}
		s.kin.tellers[p.Volume][name] = true
	}
}

func paths(l *placement.Lost) []placement.LostPath {
	if l == nil {
		return nil
	}
	return l.Paths
}

// regained reports whether a path that was lost is so no more.
func regained(old, now *placement.Lost) bool {
	if old != nil && old.All && (now == nil || !now.All) {
		return true
	}
	for _, was := range paths(old) {
		if !slices.ContainsFunc(paths(now), func(p placement.LostPath) bool { return p.Volume == was.Volume }) {
			return true
		}
	}
	return false
}

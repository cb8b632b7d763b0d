package cluster

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Backup is all that a server had at some time. Its objects are shared: no one changes them.
type Backup struct {
	objects map[string]map[Key]client.Object
}

// Backup is all that is there now.
func (s *Server) Backup() Backup {
	out := Backup{objects: map[string]map[Key]client.Object{}}
	for kind, objects := range s.objects {
		out.objects[kind] = maps.Clone(objects)
	}
	return out
}

// Restore lets the server have what the backup has, and nothing else. As after a restore of
// etcd that has its revisions bumped, resource versions do not come again; what was sent
// before does not arrive, and who starts afterwards sees nothing of before.
func (s *Server) Restore(b Backup) {
	s.restores++
	for _, kind := range slices.Sorted(maps.Keys(s.objects)) {
		for _, o := range sorted(s.objects[kind]) {
			if _, there := b.objects[kind][KeyOf(o)]; !there {
				s.commit(KeyOf(o), nil)
			}
		}
		for _, o := range sorted(b.objects[kind]) {
			if now, there := s.objects[kind][KeyOf(o)]; !there || now.GetResourceVersion() != o.GetResourceVersion() {
				s.commit(KeyOf(o), o.DeepCopyObject().(client.Object))
			}
		}
	}
	s.Settle()
}

// Restores is how often the server was restored.
func (s *Server) Restores() int { return s.restores }

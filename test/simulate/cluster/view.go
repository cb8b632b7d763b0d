package cluster

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
)

// View is what one process knows of a server by its watches: of each kind all that the
// server had at some time. It goes on only by Next.
type View struct {
	server  *Server
	at      map[string]int
	objects map[string]map[Key]client.Object
	fields  map[string]client.IndexerFunc
}

// Settle lets no view be so old that it lacks what is there now.
func (s *Server) Settle() {
	for kind, log := range s.log {
		s.settled[kind] = len(log)
	}
}

// NewView is a view of what the server had some changes ago, of each kind, with indexes.
func (s *Server) NewView(behind int, indexes []kube.Index) *View {
	v := &View{server: s, at: map[string]int{}, objects: map[string]map[Key]client.Object{}, fields: map[string]client.IndexerFunc{}}
	for _, i := range indexes {
		v.fields[kindOf(i.Object)+"/"+i.Field] = i.Extract
	}
	for kind, log := range s.log {
		for range max(len(log)-behind, s.settled[kind]) {
			v.Next(kind)
		}
	}
	return v
}

// Behind are the changes of a kind that the view has not seen.
func (v *View) Behind(kind string) int { return len(v.server.log[kind]) - v.at[kind] }

// Kinds are those of which there are objects, or were, in order.
func (v *View) Kinds() []string {
	var out []string
	for kind := range v.server.log {
		out = append(out, kind)
	}
	slices.Sort(out)
	return out
}

// Next lets the view see the next change of a kind, if there is one.
func (v *View) Next(kind string) (Event, bool) {
	if v.Behind(kind) <= 0 {
		return Event{}, false
	}
	e := v.server.log[kind][v.at[kind]]
	v.at[kind]++
	if v.objects[kind] == nil {
		v.objects[kind] = map[Key]client.Object{}
	}
	if e.Object == nil {
		delete(v.objects[kind], e.Key)
	} else {
		v.objects[kind][e.Key] = e.Object
	}
	return e, true
}

// Get reads what the view knows into o.
func (v *View) Get(k client.ObjectKey, o client.Object) error { return get(v.objects, k, o) }

// List reads what the view knows into list, in the order of the names.
func (v *View) List(list client.ObjectList, options ...client.ListOption) error {
	return fill(v.objects, v.fields, list, options)
}

// Objects are those of a kind that the view knows, in the order of their names. They are
// shared: no reader changes them.
func (v *View) Objects(kind string) []client.Object { return sorted(v.objects[kind]) }

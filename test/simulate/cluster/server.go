package cluster

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key names an object. Kind is the name of its Go type.
type Key struct{ Kind, Namespace, Name string }

// String is kind and name.
func (k Key) String() string { return k.Kind + " " + k.Name }

// KeyOf is the key of an object.
func KeyOf(o client.Object) Key {
	return Key{Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func kindOf(o any) string { return reflect.TypeOf(o).Elem().Name() }

// Event is one change of an object.
type Event struct {
	Key Key
	// Object is what it is since; nil if it is gone. It is shared: no reader changes it.
	Object client.Object
	// Before is what it was; nil if there was none.
	Before client.Object
}

// Server is one API server.
type Server struct {
	// Name of the cluster, for stories.
	Name string
	// Changed is called after each change, in order. It may be nil.
	Changed func(Event)

	now      func() time.Time
	version  int64
	restores int
	objects  map[string]map[Key]client.Object
	log      map[string][]Event
	made     map[Key]int
	settled  map[string]int
}

// New is an empty server whose stamps are by now.
func New(name string, now func() time.Time) *Server {
	return &Server{Name: name, now: now, objects: map[string]map[Key]client.Object{}, log: map[string][]Event{}, made: map[Key]int{}, settled: map[string]int{}}
}

// Get reads what is there now into o.
func (s *Server) Get(k client.ObjectKey, o client.Object) error {
	return get(s.objects, k, o)
}

// List reads what is there now into list, in the order of the names.
func (s *Server) List(list client.ObjectList, options ...client.ListOption) error {
	return fill(s.objects, nil, list, options)
}

// All are the objects of a kind as they are now, in the order of their names. They are
// shared: no reader changes them.
func All[T client.Object](s *Server) []T {
	var out []T
	var zero T
	for _, o := range sorted(s.objects[kindOf(zero)]) {
		out = append(out, o.(T))
	}
	return out
}

// Find is the object of this name as it is now, shared; false if there is none.
func Find[T client.Object](s *Server, namespace, name string) (T, bool) {
	var zero T
	o, found := s.objects[kindOf(zero)][Key{kindOf(zero), namespace, name}]
	if !found {
		return zero, false
	}
	return o.(T), true
}

// commit makes a change, if it is one, and has it told. after is nil if the object goes.
func (s *Server) commit(k Key, after client.Object) {
	before := s.objects[k.Kind][k]
	if s.objects[k.Kind] == nil {
		s.objects[k.Kind] = map[Key]client.Object{}
	}
	s.version++
	if after == nil {
		delete(s.objects[k.Kind], k)
	} else {
		after.SetResourceVersion(strconv.FormatInt(s.version, 10))
		s.objects[k.Kind][k] = after
	}
	e := Event{Key: k, Object: after, Before: before}
	s.log[k.Kind] = append(s.log[k.Kind], e)
	if s.Changed != nil {
		s.Changed(e)
	}
}

func notFound(k Key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: k.Kind}, k.Name)
}

// modified is what an API server says if the resourceVersion is another one. It names none: one that
// is kept in a status would change that, and each change is another conflict.
const modified = "the object has been modified; please apply your changes to the latest version and try again"

func conflict(k Key, format string, args ...any) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: k.Kind}, k.Name, fmt.Errorf(format, args...))
}

func get(objects map[string]map[Key]client.Object, name client.ObjectKey, into client.Object) error {
	k := Key{kindOf(into), name.Namespace, name.Name}
	o, found := objects[k.Kind][k]
	if !found {
		return notFound(k)
	}
	Assign(into, o.DeepCopyObject())
	return nil
}

// Assign lets into be what from is. Both have the same type.
func Assign(into, from runtime.Object) {
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from).Elem())
}

func sorted(objects map[Key]client.Object) []client.Object {
	keys := make([]Key, 0, len(objects))
	for k := range objects {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out := make([]client.Object, len(keys))
	for i, k := range keys {
		out[i] = objects[k]
	}
	return out
}

// fill lists the objects of the list's kind that its options ask for.
func fill(objects map[string]map[Key]client.Object, fields map[string]client.IndexerFunc, list client.ObjectList, options []client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	kind := strings.TrimSuffix(kindOf(list), "List")
	var out []runtime.Object
	for _, object := range sorted(objects[kind]) {
		if o.Namespace != "" && object.GetNamespace() != o.Namespace {
			continue
		}
		ok, err := selected(kind, object, fields, &o)
		if err != nil {
			return err
		}
		if ok {
			out = append(out, object.DeepCopyObject())
		}
	}
	return meta.SetList(list, out)
}

// selected reports whether an object has the fields that are asked for. A server knows
// none: its callers look through what they get.
func selected(kind string, object client.Object, fields map[string]client.IndexerFunc, o *client.ListOptions) (bool, error) {
	if o.FieldSelector == nil || fields == nil {
		return true, nil
	}
	for _, r := range o.FieldSelector.Requirements() {
		extract := fields[kind+"/"+r.Field]
		if extract == nil {
			return false, fmt.Errorf("list %s by %s: there is no such index", kind, r.Field)
		}
		if !slices.Contains(extract(object), r.Value) {
			return false, nil
		}
	}
	return true, nil
}

// Object is what is there now under a key, shared; false if there is none.
func (s *Server) Object(k Key) (client.Object, bool) {
	o, found := s.objects[k.Kind][k]
	return o, found
}

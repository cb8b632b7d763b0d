package kube

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects of one kind say much the same: their namespace, the reasons of their
// conditions, the parameters of their StorageClass. A decoder makes each string and each
// map anew; a cache with shared transforms holds what is equal once.
//
// What is shared must not be changed in place. That holds for all objects of a cache
// anyway: readers get copies.

// The sizes of the tables of what was seen lately, and the longest strings and largest
// maps in them: what is larger hardly comes again, and a table holds on to what it has.
const (
	sharedStrings, longestString = 4096, 128
	sharedMaps, largestMap       = 256, 8
)

// shared is what was seen lately. A value takes the place of another whose hash falls
// on the same slot, so what differs in each object costs no memory, and what is equal
// in most of them is soon back.
type shared struct {
	mu         sync.Mutex
	strings    [sharedStrings]string
	lists      [sharedMaps][]string
	parameters [sharedMaps]map[string]string
	resources  [sharedMaps]corev1.ResourceList
	// fields are those of a struct in which there may be something to share.
	fields map[reflect.Type][]int
}

func newShared() *shared { return &shared{fields: map[reflect.Type][]int{}} }

// sharing has all transforms of a cache share what is equal.
func sharing(o cache.Options) cache.Options {
	s := newShared()
	o.DefaultTransform = s.after(o.DefaultTransform)
	o.DefaultNamespaces = s.inNamespaces(o.DefaultNamespaces)
	o.ByObject = maps.Clone(o.ByObject)
	for kind, of := range o.ByObject {
		if of.Transform != nil {
			of.Transform = s.after(of.Transform)
		}
		of.Namespaces = s.inNamespaces(of.Namespaces)
		o.ByObject[kind] = of
	}
	return o
}

func (s *shared) inNamespaces(of map[string]cache.Config) map[string]cache.Config {
	of = maps.Clone(of)
	for name, config := range of {
		if config.Transform != nil {
			config.Transform = s.after(config.Transform)
			of[name] = config
		}
	}
	return of
}

// after is a transform that shares what another leaves; nil leaves all.
func (s *shared) after(transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if transform != nil {
			var err error
			if o, err = transform(o); err != nil {
				return o, err
			}
		}
		if _, is := o.(client.Object); is {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.share(reflect.ValueOf(o))
		}
		return o, nil
	}
}

// share has all in an addressable value, or behind a pointer, refer to what was seen
// before, where it is equal. It writes only what changes by that.
func (s *shared) share(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.share(v.Elem())
		}
	case reflect.Struct:
		for _, i := range s.fieldsOf(v.Type()) {
			s.share(v.Field(i))
		}
	case reflect.String:
		if is := v.String(); is != "" {
			if of := s.text(is); !identical(of, is) {
				v.SetString(of)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			s.share(v.Index(i))
		}
		if of, is := v.Addr().Interface().(*[]string); is && len(*of) > 0 {
			s.list(of)
		}
	case reflect.Map:
		s.mapping(v)
	}
}

// What is each object's own: types, and fields of its metadata.
var (
	own = map[reflect.Type]bool{
		reflect.TypeFor[types.UID]():         true,
		reflect.TypeFor[metav1.Time]():       true,
		reflect.TypeFor[metav1.MicroTime]():  true,
		reflect.TypeFor[resource.Quantity](): true,
	}
	objectMeta = reflect.TypeFor[metav1.ObjectMeta]()
	ownMeta    = map[string]bool{"Name": true, "GenerateName": true, "ResourceVersion": true, "ManagedFields": true}
)

func (s *shared) fieldsOf(t reflect.Type) []int {
	out, known := s.fields[t]
	if known {
		return out
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && shareable(f.Type) && (t != objectMeta || !ownMeta[f.Name]) {
			out = append(out, i)
		}
	}
	s.fields[t] = out
	return out
}

func shareable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return shareable(t.Elem())
	case reflect.Struct, reflect.String, reflect.Map:
		return !own[t]
	}
	return false
}

// text is an equal string that was seen before.
func (s *shared) text(is string) string {
	if len(is) > longestString {
		return is
	}
	slot := &s.strings[hash(is)%sharedStrings]
	if *slot != is {
		*slot = is
	}
	return *slot
}

// list shares a list whose strings are shared already.
func (s *shared) list(of *[]string) {
	var sum uint64
	for _, text := range *of {
		sum = 31*sum + hash(text)
	}
	slot := &s.lists[sum%sharedMaps]
	switch {
	case !slices.Equal(*slot, *of):
		*slot = *of
	case unsafe.SliceData(*slot) != unsafe.SliceData(*of):
		*of = *slot
	}
}

func (s *shared) mapping(v reflect.Value) {
	if v.Len() == 0 || v.Len() > largestMap {
		return
	}
	switch m := v.Addr().Interface().(type) {
	case *map[string]string:
		s.parameterMap(m)
	case *corev1.ResourceList:
		s.resourceList(m)
	}
}

// parameterMap shares a map, or else the strings in it.
func (s *shared) parameterMap(of *map[string]string) {
	var sum uint64 // the same in each order
	for key, value := range *of {
		sum += 31*hash(key) + hash(value)
	}
	slot := &s.parameters[sum%sharedMaps]
	if maps.Equal(*slot, *of) {
		replace(of, *slot)
		return
	}
	out, changed := make(map[string]string, len(*of)), false
	for key, value := range *of {
		k, v := s.text(key), s.text(value)
		out[k] = v
		changed = changed || !identical(k, key) || !identical(v, value)
	}
	if changed {
		*of = out
	}
	*slot = *of
}

// resourceList shares a map of quantities.
func (s *shared) resourceList(of *corev1.ResourceList) {
	var sum uint64
	for key, value := range *of {
		sum += 31*hash(string(key)) + uint64(value.Value())
	}
	slot := &s.resources[sum%sharedMaps]
	if maps.Equal(*slot, *of) {
		replace(of, *slot)
		return
	}
	*slot = *of
}

// replace puts another map in the place of one, if it is not the same.
func replace[M ~map[K]V, K comparable, V any](at *M, of M) {
	if reflect.ValueOf(*at).UnsafePointer() != reflect.ValueOf(of).UnsafePointer() {
		*at = of
	}
}

// hash is FNV-1a with its high bits folded in, the same in each run.
func hash(text string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	out := uint64(offset)
	for i := range len(text) {
		out = (out ^ uint64(text[i])) * prime
	}
	return out ^ out>>32
}

// identical reports whether two strings are one in memory.
func identical(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}

package served

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// own is where the types of Moor's kinds are. What they contain of other modules is
// described by those, and taken as a whole.
const own = "github.com/moor-storage/moor/api/"

// document is what is read of an OpenAPI document, version 3.
type document struct {
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`
}

// node is a schema: of an object with its fields, of a list or a map with what is in it.
type node struct {
	Properties map[string]*node `json:"properties"`
	Items      *node            `json:"items"`
	// Values are those of a map: a schema, or true for any.
	Values json.RawMessage `json:"additionalProperties"`
	// Open: it keeps fields that it does not have.
	Open  bool                      `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// of is the schema of a kind; nil if it is not there.
func (d document) of(k schema.GroupVersionKind) *node {
	for _, n := range d.Components.Schemas {
		if slices.Contains(n.Kinds, k) {
			return n
		}
	}
	return nil
}

// kind is one of Moor's, and its type.
type kind struct {
	schema.GroupVersionKind
	of reflect.Type
}

// kindsOf lists Moor's kinds in a scheme, without their lists.
func kindsOf(scheme *runtime.Scheme) map[schema.GroupVersion][]kind {
	out := map[schema.GroupVersion][]kind{}
	for gvk, of := range scheme.AllKnownTypes() {
		if _, object := reflect.New(of).Interface().(client.Object); object && strings.HasPrefix(of.PkgPath(), own) && gvk.Version != runtime.APIVersionInternal {
			out[gvk.GroupVersion()] = append(out[gvk.GroupVersion()], kind{gvk, of})
		}
	}
	return out
}

// missing lists the fields that a schema lacks, as paths after the name of the kind.
func (k kind) missing(s *node) []string {
	var out []string
	walk(k.of, s, k.Kind, &out)
	return out
}

// walk compares a type with a schema.
func walk(t reflect.Type, s *node, path string, out *[]string) {
	if s == nil || s.Open {
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		walk(t.Elem(), s, path, out)
	case reflect.Slice, reflect.Array:
		walk(t.Elem(), s.Items, path+"[]", out)
	case reflect.Map:
		var values node
		if json.Unmarshal(s.Values, &values) == nil {
			walk(t.Elem(), &values, path+"{}", out)
		}
	case reflect.Struct:
		if strings.HasPrefix(t.PkgPath(), own) && !reflect.PointerTo(t).Implements(marshaler) {
			fields(t, s, path, out)
		}
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// fields compares those of a struct. What is embedded without a name counts as its own.
func fields(t reflect.Type, s *node, path string, out *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			walk(f.Type, s, path, out)
		case s.Properties[name] == nil:
			*out = append(*out, path+"."+name)
		default:
			walk(f.Type, s.Properties[name], path+"."+name, out)
		}
	}
}

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Create makes o, which is what was made afterwards. Its UID is kind, name and how often
// that was made.
func (s *Server) Create(o client.Object) error {
	k := KeyOf(o)
	if _, exists := s.objects[k.Kind][k]; exists {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: k.Kind}, k.Name)
	}
	made := o.DeepCopyObject().(client.Object)
	s.made[k]++
	made.SetUID(types.UID(fmt.Sprintf("%s-%s-%d", k.Kind, k.Name, s.made[k])))
	made.SetCreationTimestamp(s.stamp())
	made.SetDeletionTimestamp(nil)
	made.SetGeneration(1)
	s.commit(k, made)
	Assign(o, made.DeepCopyObject())
	return nil
}

// Update replaces all but the status, if the object is still the one that was read.
func (s *Server) Update(o client.Object) error {
	return s.replace(o, func(next, now client.Object) { setPart(next, now, "Status") })
}

// UpdateStatus replaces the status alone, if the object is still the one that was read.
func (s *Server) UpdateStatus(o client.Object) error {
	return s.replace(o, func(next, now client.Object) {
		wanted := next.DeepCopyObject().(client.Object)
		Assign(next, now.DeepCopyObject())
		setPart(next, wanted, "Status")
	})
}

func (s *Server) replace(o client.Object, merge func(next, now client.Object)) error {
	k := KeyOf(o)
	now, found := s.objects[k.Kind][k]
	switch {
	case !found:
		return notFound(k)
	case o.GetResourceVersion() != "" && o.GetResourceVersion() != now.GetResourceVersion():
		return conflict(k, modified)
	case o.GetUID() != "" && o.GetUID() != now.GetUID():
		return conflict(k, "it has UID %s, and %s was read", now.GetUID(), o.GetUID())
	}
	next := o.DeepCopyObject().(client.Object)
	merge(next, now)
	return s.put(k, o, now, next)
}

// Patch merges data into all but the status. A patch that names the UID of another object
// is invalid; one that names another resourceVersion is a conflict.
func (s *Server) Patch(o client.Object, kind types.PatchType, data []byte) error {
	return s.patch(o, kind, data, false)
}

// PatchStatus merges data into the status alone. The UID is not compared.
func (s *Server) PatchStatus(o client.Object, kind types.PatchType, data []byte) error {
	return s.patch(o, kind, data, true)
}

func (s *Server) patch(o client.Object, kind types.PatchType, data []byte, status bool) error {
	k := KeyOf(o)
	now, found := s.objects[k.Kind][k]
	if !found {
		return notFound(k)
	}
	var change map[string]any
	if err := json.Unmarshal(data, &change); err != nil {
		return fmt.Errorf("read the patch of %s: %w", k, err)
	}
	if err := preconditions(k, now, change, status); err != nil {
		return err
	}
	maps.DeleteFunc(change, func(name string, _ any) bool { return (name == "status") != status })
	next, err := merged(now, kind, change)
	if err != nil {
		return err
	}
	return s.put(k, o, now, next)
}

// preconditions holds what a patch names of the object against what that is, and takes it
// out of the patch.
func preconditions(k Key, now client.Object, change map[string]any, status bool) error {
	about, _ := change["metadata"].(map[string]any)
	if version, ok := about["resourceVersion"].(string); ok && version != now.GetResourceVersion() {
		return conflict(k, modified)
	}
	if uid, ok := about["uid"].(string); ok && !status && uid != string(now.GetUID()) {
		return apierrors.NewInvalid(schema.GroupKind{Kind: k.Kind}, k.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
		})
	}
	delete(about, "resourceVersion")
	delete(about, "uid")
	return nil
}

// merged is an object after a patch: a strategic one merges lists by their keys.
func merged(now client.Object, kind types.PatchType, change map[string]any) (client.Object, error) {
	text, err := json.Marshal(now)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", KeyOf(now), err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("decode %s: %w", KeyOf(now), err)
	}
	next := reflect.New(reflect.TypeOf(now).Elem()).Interface().(client.Object)
	if kind == types.StrategicMergePatchType {
		if all, err = strategicpatch.StrategicMergeMapPatch(all, change, next); err != nil {
			return nil, fmt.Errorf("merge the patch into %s: %w", KeyOf(now), err)
		}
	} else {
		merge(all, change)
	}
	if text, err = json.Marshal(all); err != nil {
		return nil, fmt.Errorf("encode %s: %w", KeyOf(now), err)
	}
	if err := json.Unmarshal(text, next); err != nil {
		return nil, fmt.Errorf("decode %s: %w", KeyOf(now), err)
	}
	return next, nil
}

// merge is a JSON merge patch (RFC 7386).
func merge(into, change map[string]any) {
	for name, value := range change {
		part, object := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case object:
			below, ok := into[name].(map[string]any)
			if !ok {
				below = map[string]any{}
			}
			merge(below, part)
			into[name] = below
		default:
			into[name] = value
		}
	}
}

// put writes next in the place of now, unless that changes nothing, and lets o be what is
// there then. An object that goes is gone with its last finalizer, and gets no new one.
func (s *Server) put(k Key, o, now, next client.Object) error {
	next.SetUID(now.GetUID())
	next.SetCreationTimestamp(now.GetCreationTimestamp())
	next.SetDeletionTimestamp(now.GetDeletionTimestamp())
	next.SetResourceVersion(now.GetResourceVersion())
	next.SetGeneration(now.GetGeneration())
	if err := admit(k, now, next); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(part(now, "Spec"), part(next, "Spec")) {
		next.SetGeneration(now.GetGeneration() + 1)
	}
	gone := !next.GetDeletionTimestamp().IsZero() && len(next.GetFinalizers()) == 0
	switch {
	case gone:
		s.commit(k, nil)
	case !equality.Semantic.DeepEqual(now, next):
		s.commit(k, next)
	}
	Assign(o, next.DeepCopyObject())
	return nil
}

// Delete deletes the object if it is the one that the preconditions name. One with
// finalizers stays until the last is off.
func (s *Server) Delete(o client.Object, options ...client.DeleteOption) error {
	var d client.DeleteOptions
	d.ApplyOptions(options)
	k := KeyOf(o)
	now, found := s.objects[k.Kind][k]
	if !found {
		return notFound(k)
	}
	if p := d.Preconditions; p != nil {
		if p.UID != nil && *p.UID != now.GetUID() {
			return conflict(k, "it has UID %s, and %s was to be deleted", now.GetUID(), *p.UID)
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != now.GetResourceVersion() {
			return conflict(k, modified)
		}
	}
	switch {
	case len(now.GetFinalizers()) == 0:
		s.commit(k, nil)
	case now.GetDeletionTimestamp().IsZero():
		next := now.DeepCopyObject().(client.Object)
		at := s.stamp()
		next.SetDeletionTimestamp(&at)
		next.SetGeneration(now.GetGeneration() + 1)
		s.commit(k, next)
	}
	return nil
}

// Strip removes an object at once, as who takes off all finalizers by force does.
func (s *Server) Strip(k Key) {
	if _, found := s.objects[k.Kind][k]; found {
		s.commit(k, nil)
	}
}

// stamp is now, as coarse as a server's.
func (s *Server) stamp() metav1.Time { return metav1.NewTime(s.now().Truncate(time.Second)) }

// part is a field of an object; nil if its kind has none of the name.
func part(o client.Object, name string) any {
	f := reflect.ValueOf(o).Elem().FieldByName(name)
	if !f.IsValid() {
		return nil
	}
	return f.Interface()
}

// setPart lets a field of into be that of from.
func setPart(into, from client.Object, name string) {
	f := reflect.ValueOf(into).Elem().FieldByName(name)
	if f.IsValid() {
		f.Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName(name))
	}
}

// Package compiled keeps PavProvisioners as they are compiled, so that each generation of one is
// compiled once for all that use it.
package compiled

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Store has one compiled provisioner for each name. The zero value is ready; safe for concurrent
// use.
type Store struct {
	mu sync.Mutex
	by map[string]entry
}

type entry struct {
	uid        types.UID
	generation int64
	compiled   *pods.Provisioner
	errs       field.ErrorList
}

// Of is a PavProvisioner compiled, or what is wrong with it.
func (s *Store) Of(p *pavv1alpha1.PavProvisioner) (*pods.Provisioner, field.ErrorList) {
	s.mu.Lock()
	e, have := s.by[p.Name]
	s.mu.Unlock()
	if have && e.uid == p.UID && e.generation == p.Generation {
		return e.compiled, e.errs
	}
	e = entry{uid: p.UID, generation: p.Generation}
	e.compiled, e.errs = pods.Compile(p.DeepCopy())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]entry{}
	}
	s.by[p.Name] = e
	return e.compiled, e.errs
}

// Forget drops what is known of a name, as its object is gone.
func (s *Store) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, name)
}

// Found is a provisioner that was looked for by its name.
type Found struct {
	// Provisioner is nil if it cannot be used.
	Provisioner *pods.Provisioner
	// Words say why not, or that it is being deleted.
	Words string
	// Deleting is true of one that is being deleted: it does away with what there is, and begins
	// nothing.
	Deleting bool
	// Concurrent is AnnotationConcurrentStaging.
	Concurrent bool
	// UID of the PavProvisioner.
	UID types.UID
}

// Timeout is how long the pod of a phase may need, also of a provisioner that cannot be used.
func (f Found) Timeout(phase pods.Phase) time.Duration {
	if f.Provisioner == nil {
		return pods.DefaultTimeout
	}
	return f.Provisioner.Timeout(phase)
}

// Find looks for a provisioner in a cache.
func (s *Store) Find(ctx context.Context, from client.Reader, name string) (Found, error) {
	p := &pavv1alpha1.PavProvisioner{}
	found, err := kube.Find(ctx, from, types.NamespacedName{Name: name}, p, client.UnsafeDisableDeepCopy)
	switch {
	case err != nil:
		return Found{}, err
	case !found:
		return Found{Words: fmt.Sprintf("PavProvisioner %s does not exist: create it again, its volumes need it", name)}, nil
	}
	compiled, errs := s.Of(p)
	out := Found{Provisioner: compiled, UID: p.UID, Deleting: !p.DeletionTimestamp.IsZero(), Concurrent: p.Annotations[moorv1alpha1.AnnotationConcurrentStaging] == "true"}
	switch {
	case len(errs) > 0:
		out.Words = fmt.Sprintf("PavProvisioner %s cannot be used: %v", name, errs.ToAggregate())
	case out.Deleting:
		out.Words = fmt.Sprintf("PavProvisioner %s is being deleted", name)
	}
	return out, nil
}

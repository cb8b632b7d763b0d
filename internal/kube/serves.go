package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Serves reports whether the API server behind a mapper serves a kind. What is
// not installed must not be watched: such a watch never comes to be. It is asked also about needed
// kinds: what one program needs, another may do without.
func Serves(asked meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	if m, knows := asked.(*mapper); knows {
		asked = m.RESTMapper
	}
	_, err := asked.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask the API server whether it serves %s: %w", kind, err)
	}
	return true, nil
}

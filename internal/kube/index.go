package kube

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Index is a field index of a cache: by which values of a field objects of a
// kind are found.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// pointer is a pointer to T that is a Kubernetes object.
type pointer[T any] interface {
	*T
	client.Object
}

// IndexOf is the index of a kind by a field.
func IndexOf[T any, P pointer[T]](field string, extract func(P) []string) Index {
	return Index{
		Object:  P(new(T)),
		Field:   field,
		Extract: func(o client.Object) []string { return extract(o.(P)) },
	}
}

// Some is the value to find an object by; none if it is empty.
func Some(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// AddIndexes registers indexes; each once per cache, before it starts.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer, all ...Index) error {
	for _, i := range all {
		if err := indexer.IndexField(ctx, i.Object, i.Field, i.Extract); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

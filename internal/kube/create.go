package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Create makes obj; one that exists already is read into obj instead. It
// reports whether it made it. One that exists and cannot be read, because the
// cache does not show it yet, or it has gone meanwhile, is a conflict.
func Create(ctx context.Context, c client.Client, obj client.Object) (bool, error) {
	return CreateLive(ctx, c, c, obj)
}

// CreateLive is Create for a client that reads from a cache: what exists
// already is read by live, from the server itself, since a cache that did not
// show it before may not show it now.
func CreateLive(ctx context.Context, c client.Client, live client.Reader, obj client.Object) (bool, error) {
	err := c.Create(ctx, obj)
	if err == nil {
		return true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create %s: %w", describe(obj), err)
	}
	err = live.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	if IsNotFound(err) {
		err = apierrors.NewConflict(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, obj.GetName(), err)
	}
	if err != nil {
		return false, fmt.Errorf("read %s, which exists: %w", describe(obj), err)
	}
	return false, nil
}

package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	if err := live.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return false, fmt.Errorf("read %s, which exists: %w", describe(obj), err)
	}
	return false, nil
}

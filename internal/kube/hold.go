package kube

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hold has a cache read the first lists of kinds as soon as it is started, and follow them
// from then on. What nothing but a controller asks for is else read when the controller starts,
// which one of several replicas does once it has the lease. So the one that takes over would
// first list all that its predecessor had, and nothing would fail over meanwhile; and an API
// server that answers with 50,000 objects of a kind may be too busy to renew the lease in time.
func Hold(ctx context.Context, c cache.Cache, kinds ...client.Object) error {
	for _, kind := range kinds {
		if _, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

package kube

import (
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// Cluster is one API server, as a reconciler uses it.
type Cluster struct {
	// Client reads from Cache and writes to the API server.
	Client client.Client
	// Live reads from the API server itself, for decisions that a stale cache
	// would get wrong.
	Live client.Reader
	// Cache is what watches are made of. Nil in unit tests, which watch nothing.
	Cache cache.Cache
}

// ClusterOf is the cluster behind a manager, or one that was added to it.
func ClusterOf(c cluster.Cluster) Cluster {
	return Cluster{Client: c.GetClient(), Live: c.GetAPIReader(), Cache: c.GetCache()}
}

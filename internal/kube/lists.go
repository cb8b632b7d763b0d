package kube

import (
	"os"
	"sync"

	clientgofeatures "k8s.io/client-go/features"
)

// wholeLists has informers read a kind for the first time as one list, and not as a
// stream of events (client-go's WatchListClient): each event is a message of its own, which
// costs API server and program nearly twice the processor time of an item of a list. An
// API server that encodes lists piece by piece (Kubernetes 1.33) needs little memory for one.
//
// Such a list may be as old as the cache of an API server that lags behind, and a stream
// begins with what is there now. But a moment later a cache may lag as far: what has to be
// certain is read from the API server itself (docs/safety.md).
var wholeLists = sync.OnceValue(func() error {
	return prefer(clientgofeatures.FeatureGates(), os.LookupEnv)
})

// prefer switches the feature off, unless the environment says what it is to be.
func prefer(gates clientgofeatures.Gates, environment func(string) (string, bool)) error {
	if _, said := environment("KUBE_FEATURE_" + string(clientgofeatures.WatchListClient)); said {
		return nil
	}
	return gates.(interface {
		Set(name clientgofeatures.Feature, on bool) error
	}).Set(clientgofeatures.WatchListClient, false)
}

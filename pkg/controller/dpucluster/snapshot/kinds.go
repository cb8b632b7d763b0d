package snapshot

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moor-storage/moor/internal/kube"
)

// kinds are those of snapshot.storage.k8s.io, or of groupsnapshot.storage.k8s.io,
// which a DPU cluster need not have. They are watched from the moment on when
// they are there and wanted.
type kinds struct {
	// watch begins to watch them; nil in tests.
	watch func() error

	mu       sync.Mutex
	watching bool
}

// installed reports whether the kinds are there, and watched.
func (k *kinds) installed(mapper meta.RESTMapper, all ...schema.GroupVersionKind) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watching {
		return true, nil
	}
	for _, kind := range all {
		served, err := kube.Serves(mapper, kind)
		if err != nil || !served {
			return false, err
		}
	}
	if k.watch != nil {
		if err := k.watch(); err != nil {
			return false, fmt.Errorf("watch %s: %w", all, err)
		}
	}
	k.watching = true
	return true, nil
}

package framework

import (
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// cycle is what is known during one attempt to place a pod.
type cycle struct {
	ranking state.Ranking
	// anywhere is true if no node is held back.
	anywhere bool
	// refused is true once a node could not serve the pod's volumes.
	refused atomic.Bool

	once sync.Once
	// elsewhere is true once nodes are held back for one with a replica.
	elsewhere atomic.Bool
}

// Clone is the same: what there is to know does not depend on which pods are on
// the nodes.
func (c *cycle) Clone() fwk.StateData { return c }

// hold says whether nodes without a replica are held back: whether any of those
// with one, healthy and ready, fits. That is asked once, by the first node
// without; the filters of other nodes wait for the answer.
func (c *cycle) hold(fits func(node string) bool) bool {
	c.once.Do(func() {
		for _, node := range c.ranking.Near() {
			if fits(node) {
				c.elsewhere.Store(true)
				return
			}
		}
	})
	return c.elsewhere.Load()
}

// held reports whether a node was held back.
func (c *cycle) held() bool { return c.elsewhere.Load() }

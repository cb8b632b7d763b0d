package volume

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Candidate is a vendor that may serve a volume.
type Candidate struct {
	Name string
	// Volumes that the vendor has already, of every policy.
	Volumes int
}

// SelectVendor chooses one of the candidates; there must be at least one.
// Random takes any with equal chance, by intN(n), which returns 0..n-1. Every
// other algorithm is LocalNVolumes: the fewest volumes, where a vendor with
// none is a candidate like any other; a tie goes to the first in alphabetical
// order.
func SelectVendor(alg storagev1alpha1.StorageSelectionAlg, candidates []Candidate, intN func(int) int) string {
	if alg == storagev1alpha1.AlgRandom {
		return candidates[intN(len(candidates))].Name
	}
	least := candidates[0]
	for _, c := range candidates[1:] {
		if c.Volumes < least.Volumes || c.Volumes == least.Volumes && c.Name < least.Name {
			least = c
		}
	}
	return least.Name
}

// choices are the vendors chosen so recently that the cache may not show them
// yet. They only keep volumes that arrive together from all going to the same
// vendor; the truth is in the Volumes. The zero value is ready.
type choices struct {
	mu   sync.Mutex
	made map[types.NamespacedName]string
}

// choose calls pick with the choices made so far and remembers its answer for
// the volume. Only one pick runs at a time.
func (c *choices) choose(volume types.NamespacedName, pick func(made map[types.NamespacedName]string) (string, error)) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, volume)
	vendor, err := pick(c.made)
	if err != nil {
		return "", err
	}
	if c.made == nil {
		c.made = map[types.NamespacedName]string{}
	}
	c.made[volume] = vendor
	return vendor, nil
}

// forget drops the choice of a volume: it is written down, was lost, or the
// volume is gone.
func (c *choices) forget(volume types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, volume)
}

package volume

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// choices tells how many volumes each vendor has: those that passes have seen, and those
// chosen so recently that the cache may not show them yet, so that volumes that arrive
// together do not all go to the same vendor. It is made up of all volumes when it is first
// asked, and kept by the passes over them; the truth is in the Volumes. The zero value is
// ready; safe for concurrent use.
type choices struct {
	mu     sync.Mutex
	read   bool
	vendor map[types.NamespacedName]string
	count  map[types.NamespacedName]int // of volumes, by namespace and vendor
}

// choose remembers for the volume which vendor pick takes, by how many volumes each has
// beside this one; all lists the volumes that there are. Only one pick runs at a time.
func (c *choices) choose(volume types.NamespacedName, all func() ([]storagev1alpha1.Volume, error), pick func(count func(vendor string) int) string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read {
		volumes, err := all()
		if err != nil {
			return "", err
		}
		for i := range volumes {
			c.set(client.ObjectKeyFromObject(&volumes[i]), volumes[i].Spec.Volume.StorageVendorName)
		}
		c.read = true
	}
	c.set(volume, "")
	vendor := pick(func(vendor string) int {
		return c.count[types.NamespacedName{Namespace: volume.Namespace, Name: vendor}]
	})
	c.set(volume, vendor)
	return vendor, nil
}

// know notes the vendor that is written down for a volume; "" if there is none, or no such
// volume.
func (c *choices) know(volume types.NamespacedName, vendor string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(volume, vendor)
}

func (c *choices) set(volume types.NamespacedName, vendor string) {
	was := c.vendor[volume]
	if was == vendor {
		return
	}
	if c.vendor == nil {
		c.vendor, c.count = map[types.NamespacedName]string{}, map[types.NamespacedName]int{}
	}
	if was != "" {
		delete(c.vendor, volume)
		c.count[types.NamespacedName{Namespace: volume.Namespace, Name: was}]--
	}
	if vendor != "" {
		c.vendor[volume] = vendor
		c.count[types.NamespacedName{Namespace: volume.Namespace, Name: vendor}]++
	}
}

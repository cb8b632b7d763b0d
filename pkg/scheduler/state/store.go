package state

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/placement"
)

// Store holds the current Index. Readers take it without a lock; writers,
// which are the watches, change it one after another.
type Store struct {
	drivers []string
	clock   clock.WithTicker

	index atomic.Pointer[Index]
	// contact is when the API server last answered; nil if it never did.
	contact atomic.Pointer[time.Time]
	// feeds are what must have delivered its first list before the index may
	// be asked; nil before Follow.
	feeds atomic.Pointer[[]feed]

	// opened, if not nil, is told of each node that may serve, by a change, a
	// pod that it refused.
	opened func(Opened)

	writing sync.Mutex
	// owner leads from an attachment to the volume it is counted for, in case
	// an object comes back under its name for another volume.
	owner map[string]string
	kin   kinship
}

// New returns an empty store for the volumes of some CSI drivers.
func New(drivers []string, c clock.WithTicker) *Store {
	s := &Store{drivers: drivers, clock: c, owner: map[string]string{}, kin: newKinship()}
	s.index.Store(empty())
	return s
}

// Opened is a change by which a node may serve a pod that it refused.
type Opened struct {
	Node string
	// Before and After are the index without and with the change.
	Before, After *Index
}

// OnOpened has a function told of each change by which a node may serve a pod
// that it refused, when the change is in the index and before the next is. It
// must not call the store. OnOpened is called before the first Set.
func (s *Store) OnOpened(tell func(Opened)) { s.opened = tell }

// Index is the state now. It is empty before the first lists have come.
func (s *Store) Index() *Index { return s.index.Load() }

// Set takes in a claim, a volume, an attachment or a node as it is now; anything
// else, and what changes nothing that counts, is passed over.
func (s *Store) Set(o any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	before := s.index.Load()
	now := *before
	var opened []string
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		if o.Status.Phase == corev1.ClaimBound && o.Spec.VolumeName != "" {
			now.claims = put(now.claims, o.Namespace+"/"+o.Name, o.Spec.VolumeName)
		} else {
			now.claims = drop(now.claims, o.Namespace+"/"+o.Name)
		}
	case *corev1.PersistentVolume:
		if v, ours := volumeOf(o, s.drivers); ours {
			opened = s.setVolume(&now, o.Name, &v)
		} else {
			opened = s.setVolume(&now, o.Name, nil)
		}
	case *storagev1alpha1.DPUVolumeAttachment:
		now.copies = s.countCopy(now.copies, o.Namespace+"/"+o.Name, o.Spec.DPUVolumeName, placement.Copy{Node: o.Spec.DPUNodeName, Warmth: warmthOf(o)})
		if now.copies != before.copies {
			opened = []string{o.Spec.DPUNodeName} // the volume may have its function now
		}
	case *moorv1alpha1.DPUStorageNode:
		opened = s.setNode(&now, o.Name, nodeOf(o))
	}
	s.publish(before, &now, opened)
}

// Remove forgets an object, also one whose deletion was missed and is only
// known by its last state.
func (s *Store) Remove(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	before := s.index.Load()
	now := *before
	var opened []string
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		now.claims = drop(now.claims, o.Namespace+"/"+o.Name)
	case *corev1.PersistentVolume:
		opened = s.setVolume(&now, o.Name, nil)
	case *storagev1alpha1.DPUVolumeAttachment:
		now.copies = s.countCopy(now.copies, o.Namespace+"/"+o.Name, o.Spec.DPUVolumeName, placement.Copy{})
	case *moorv1alpha1.DPUStorageNode:
		s.setNode(&now, o.Name, nil)
	}
	s.publish(before, &now, opened)
}

// publish swaps the index if it changed: a heartbeat mostly changes nothing. Then it
// tells of the nodes that the change has opened.
func (s *Store) publish(before, now *Index, opened []string) {
	if *before != *now {
		s.index.Store(now)
	}
	if s.opened == nil {
		return
	}
	for _, node := range opened {
		s.opened(Opened{Node: node, Before: before, After: now})
	}
}

// countCopy counts an attachment as a copy of its volume; a cold one counts as
// none.
func (s *Store) countCopy(t *table[copies], attachment, volume string, now placement.Copy) *table[copies] {
	if old, known := s.owner[attachment]; known {
		c, _ := t.get(old)
		if i := slices.Index(c.attachments, attachment); i >= 0 {
			if old == volume && c.warm[i] == now {
				return t
			}
			t = putCopies(t, old, c.without(i))
		}
	}
	if now.Warmth == placement.Cold {
		delete(s.owner, attachment)
		return t
	}
	s.owner[attachment] = volume
	c, _ := t.get(volume)
	return putCopies(t, volume, c.with(attachment, now))
}

// putCopies stores a volume's copies; none of them means no entry.
func putCopies(t *table[copies], volume string, c copies) *table[copies] {
	if len(c.warm) == 0 {
		return drop(t, volume)
	}
	return t.with(volume, c)
}

func (c copies) without(i int) copies {
	return copies{
		attachments: slices.Delete(slices.Clone(c.attachments), i, i+1),
		warm:        slices.Delete(slices.Clone(c.warm), i, i+1),
	}
}

func (c copies) with(attachment string, p placement.Copy) copies {
	return copies{attachments: append(slices.Clone(c.attachments), attachment), warm: append(slices.Clone(c.warm), p)}
}

// put returns the same table if the key has that value already.
func put[V comparable](t *table[V], key string, value V) *table[V] {
	if old, ok := t.get(key); ok && old == value {
		return t
	}
	return t.with(key, value)
}

// drop returns the same table if the key is not there.
func drop[V any](t *table[V], key string) *table[V] {
	if _, ok := t.get(key); !ok {
		return t
	}
	return t.without(key)
}

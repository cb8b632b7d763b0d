package attachment

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// cacheLag is how long the cache is given to show what was made.
const cacheLag = 10 * time.Second

// made are the SVVolumeAttachments that were made within cacheLag and that the cache has
// not shown yet, by the attachment that asks: the write that precedes the making starts
// another pass, which would make it again and be refused. It only spares requests: what
// is made twice is one object. The zero value is ready; safe for concurrent use.
type made struct {
	mu sync.Mutex
	by map[types.UID]expected
}

type expected struct {
	sv *storagev1alpha1.SVVolumeAttachment
	at time.Time
}

// expect notes what was made, and forgets what is over.
func (m *made) expect(attachment types.UID, sv *storagev1alpha1.SVVolumeAttachment, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[types.UID]expected{}
	}
	maps.DeleteFunc(m.by, func(_ types.UID, e expected) bool { return now.Sub(e.at) >= cacheLag })
	m.by[attachment] = expected{sv.DeepCopy(), now}
}

// shown notes that the cache shows it.
func (m *made) shown(attachment types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, attachment)
}

// lately is what was made for the attachment, and for how long the cache may still not
// show it; nil if nothing was.
func (m *made) lately(attachment types.UID, c clock.PassiveClock) (*storagev1alpha1.SVVolumeAttachment, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.by[attachment]
	left := cacheLag - c.Since(e.at)
	if !ok || left <= 0 {
		return nil, 0
	}
	return e.sv.DeepCopy(), left
}

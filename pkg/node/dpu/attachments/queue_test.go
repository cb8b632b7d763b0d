package attachments

import (
	"fmt"
	"slices"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// looked are the attachments that are to be looked at again.
func (k *kit) looked(q *Queue) (out []string) {
	for len(q.Events()) > 0 {
		e := <-q.Events()
		out = append(out, e.Object.GetName())
	}
	slices.Sort(out)
	return out
}

// TestQueueIsBounded: a round that finds more than the reconciler can take does not wait for it, and what
// is queued is as it was then, whatever is done with the attachment meanwhile.
func TestQueueIsBounded(t *testing.T) {
	k := newKit(t)
	q := NewQueue(k.Store)
	for i := range 300 {
		a := attachment(fmt.Sprintf("a%03d", i), "v", "", "")
		q.Add(a)
		a.Name = "changed"
	}
	got := k.looked(q)
	if len(got) != 256 || got[0] != "a000" || got[255] != "a255" {
		t.Errorf("%d are looked at, %q first and %q last", len(got), got[0], got[len(got)-1])
	}
}

// TestWaitingAreWoken: when a plugin has come, what waits for something is looked at again, and what goes;
// what is well is left alone.
func TestWaitingAreWoken(t *testing.T) {
	k := newKit(t)
	waits := func(a *storagev1alpha1.VolumeAttachment) *storagev1alpha1.VolumeAttachment {
		a.Status.Message = "waits"
		return a
	}
	k.add(k.cache, attachment("well", "v", "d", ""), waits(attachment("waits", "w", "", "")), going(attachment("goes", "x", "", "")),
		waits(going(attachment("goes-too", "y", "", ""))))
	q := NewQueue(k.Store)
	q.AddWaiting(t.Context())
	if got := k.looked(q); !slices.Equal(got, []string{"goes", "goes-too", "waits"}) {
		t.Errorf("looked at are %q", got)
	}
	k.lost = errLost
	q.AddWaiting(t.Context())
	if got := k.looked(q); len(got) != 0 {
		t.Errorf("nothing is known, and looked at are %q", got)
	}
}

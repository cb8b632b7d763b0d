package revocation

import (
	"cmp"
	"fmt"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/writer"
)

// answer is what is to be done about a request that is being deleted.
type answer int

const (
	// waits: words say for what.
	waits answer = iota
	// release: no word of the storage is needed, and the request is let go.
	release
	// shut: no staging pod is to be made any more for a staging that may have one made.
	shut
	// ask: a PodRevocation is to be made.
	ask
	// discard: the PodRevocation proves nothing, and makes room for another; words say why.
	discard
	// say: the storage's word is to be written, and then the request let go.
	say
)

// needed is the epoch for whose end the storage's word may be needed; 0 if it is not.
func (f facts) needed(sv *storagev1alpha1.SVVolumeAttachment) int64 {
	if f.attachment == nil || !writer.TakesRevocation(f.attachment, sv.Spec.NodeName) {
		return 0
	}
	return writer.Withheld(f.attachment, f.claim)
}

// next decides about a request that is being deleted; r is its PodRevocation, nil if there is none. The success of a
// pod is the word of the storage only for this very attachment, volume, DPU and epoch, while the right to write is
// being taken, of the template as it is now, and if nothing was staged on the DPU since. Everything else waits.
func next(sv *storagev1alpha1.SVVolumeAttachment, f facts, r *moorv1alpha1.PodRevocation) (answer, string) {
	epoch := f.needed(sv)
	if epoch == 0 {
		return release, ""
	}
	if !writer.InFencing(f.claim, writer.HolderOf(f.attachment)) {
		return waits, fmt.Sprintf("waiting for DPU %s to withdraw the volume: its right to write is not being taken, so the storage is not asked", sv.Spec.NodeName)
	}
	if words := f.lacks(sv); words != "" {
		return waits, words
	}
	if f.open() != nil {
		return shut, ""
	}
	if words := f.stages(); words != "" {
		return waits, words
	}
	switch {
	case r == nil:
		return ask, ""
	case !r.DeletionTimestamp.IsZero():
		return waits, "waiting until what is left of an earlier revocation is gone"
	case r.Spec != f.specOf(sv, epoch):
		return discard, "it is of another attachment, epoch, volume or DPU"
	case r.Status.Phase == moorv1alpha1.PodRevocationFailed:
		return waits, helper.AndAgain(r.Status.Message, "podrevocation", r.Name)
	case r.Status.Phase != moorv1alpha1.PodRevocationRevoked:
		return waits, cmp.Or(r.Status.Message, "the revocation pod is to run")
	}
	if words := f.stale(r); words != "" {
		return discard, words
	}
	return say, ""
}

// Package lostpath decides what becomes of a volume whose DPU does not reach its storage
// any more, while the host and the DPU live. The volume moves only if another host's DPU
// reaches the same storage, and the storage itself can end the right to write: what the
// DPU had sent may be at the storage, and its own word does not tell of that. Where the
// storage is away for all, nothing is moved.
//
// A pod that a person deletes could not end while its I/O waits: then the right to write is
// taken too, and with it the I/O ends, however its receipt may come.
//
// It writes nothing: package failover fences and releases.
package lostpath

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Facts are what is known of a volume whose path is lost.
type Facts struct {
	// Lost is for how long it has been lost, Timeout for how long that is borne; 0: for
	// ever.
	Lost, Timeout time.Duration
	// Others is how many other DPUs have a device of the volume, and Witnesses are the
	// hosts of those that are heard and reach the storage, in order.
	Others    int
	Witnesses []string
	// Drained are the hosts of those that reach the storage as well, and that no pod is put
	// on, since their DPU is being drained.
	Drained []string
	// Epochs: the device is open at the storage under an epoch, so that the storage can
	// be asked to accept nothing of it any more. Revokes: its vendor vouches that its storage
	// accepts nothing of a DPU that it has detached.
	Epochs, Revokes bool
	// Leaving: there are pods of the host that use the volume, and all are being deleted.
	Leaving bool
}

// Verdict is what is to be done.
type Verdict struct {
	// Move: the right to write is taken from the DPU, and the pods are let go.
	Move bool
	// Again is when to look again; 0: when something changes.
	Again time.Duration
	// Words say for a person what is done, and what they can do.
	Words string
}

// byHand is what a person can do about a volume that stays.
const byHand = "I/O waits, or fails; delete the pod to have it tried elsewhere"

// leavingAfter is for how long pods that are being deleted keep a volume for which nothing is
// done by itself: they may have something to write yet, should its path come back.
const leavingAfter = storagev1alpha1.DefaultPathTimeoutSeconds * time.Second

// Judge says what to do.
func Judge(f Facts) Verdict {
	out := judge(f)
	out.Words = "its DPU does not reach the storage: " + out.Words
	return out
}

func judge(f Facts) Verdict {
	switch bear := cmp.Or(f.Timeout, leavingAfter); {
	case f.Leaving && f.Lost < bear:
		return Verdict{Again: bear - f.Lost, Words: fmt.Sprintf("the pods that use the volume are being deleted; their I/O is ended once that has lasted for %s", bear)}
	case f.Leaving:
		return Verdict{Move: true, Words: "the pods that use the volume are being deleted, and cannot end while their I/O waits, so it is ended"}
	case f.Timeout <= 0:
		return Verdict{Words: "the volume does not fail over, or its pathTimeout is 0s, so nothing is done by itself: " + byHand}
	case f.Others == 0:
		return Verdict{Words: "no other DPU has the volume, so whether the storage can be reached elsewhere is not known, and nothing is done by itself: " + byHand + ", or let the volume have replicas"}
	case len(f.Witnesses) == 0 && len(f.Drained) > 0:
		return Verdict{Again: leavingAfter, Words: fmt.Sprintf("only the DPU of host %s reaches it, which is being drained, so nothing is moved there: end that drain (spec.drain of its DPUStorageNode)", strings.Join(f.Drained, ", "))}
	case len(f.Witnesses) == 0:
		return Verdict{Words: "no other DPU that has the volume reaches the storage either: nothing is moved, and I/O waits until the storage is back"}
	case !f.Epochs && !f.Revokes:
		return Verdict{Words: "the storage cannot be asked to end the right to write, since its vendor neither knows epochs nor vouches that it revokes, and what the DPU had sent may be on its way yet, so nothing is done by itself: " + byHand}
	case f.Lost < f.Timeout:
		left := f.Timeout - f.Lost
		return Verdict{Again: left, Words: fmt.Sprintf("the volume moves once that has lasted for %s, as the DPU of host %s reaches the storage", f.Timeout, strings.Join(f.Witnesses, ", "))}
	}
	return Verdict{Move: true, Words: fmt.Sprintf("that has lasted for more than %s, and the DPU of host %s reaches it, so the volume moves", f.Timeout, strings.Join(f.Witnesses, ", "))}
}

package deadmount

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// pauses are how long after the last time pods of a volume are deleted again. A volume that
// is dead again and again has another trouble than a mount.
var pauses = []time.Duration{0, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}

// forgetAfter is when earlier times no longer count.
const forgetAfter = time.Hour

// byHand is what a person can do.
const byHand = "delete the pod to have the volume mounted anew: its containers keep the dead mount when they are started again"

// bare is said of a pod that does not come back by itself.
const bare = byHand + " (nothing is done by itself: no controller would make the pod anew)"

// decision is what is to be done about the dead mounts of a volume on a host.
type decision struct {
	// restart: its pods are deleted now, and this is the state to be written before.
	restart *storagev1alpha1.RestartState
	// again is when to look again; 0: when something changes.
	again time.Duration
	// words say for a person what is done, and what they can do.
	words string
}

// decide says what to do about the dead mounts of a volume, whose device is ready for a new
// pod or not; so many of the pods come back if they are deleted.
func decide(v *storagev1alpha1.DPUVolume, ready bool, returning int, now time.Time) decision {
	switch {
	case v.Spec.OnDeadMount() != storagev1alpha1.DeadMountRestart:
		return decision{words: fmt.Sprintf("%s (nothing is done by itself: deadMount is %s)", byHand, storagev1alpha1.DeadMountTell)}
	case returning == 0:
		return decision{words: bare}
	}
	if !ready {
		return decision{words: "its pods are deleted, to have it mounted anew, once its device answers on the host again"}
	}
	count, last := int32(0), time.Time{}
	if r := v.Status.Restarts; r != nil && now.Sub(r.Last.Time) < forgetAfter {
		count, last = r.Count, r.Last.Time
	}
	if int(count) >= len(pauses) {
		return decision{
			words: fmt.Sprintf("its pods were deleted %d times within an hour to have it mounted anew, and the mount died again: no more is done by itself until %s; look at the DPU and at the storage, then %s",
				count, last.Add(forgetAfter).UTC().Format(time.TimeOnly+" MST"), byHand),
			again: last.Add(forgetAfter).Sub(now),
		}
	}
	if wait := pauses[count] - now.Sub(last); count > 0 && wait > 0 {
		return decision{words: fmt.Sprintf("its pods are deleted once more, to have it mounted anew, %s after the last time", pauses[count]), again: wait}
	}
	return decision{restart: &storagev1alpha1.RestartState{Count: count + 1, Last: metav1.NewTime(now)}, words: "its pods are deleted, to have it mounted anew"}
}

package deadmount

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func volume(mode storagev1alpha1.DeadMountMode, r *storagev1alpha1.Replication, count int32, ago time.Duration) *storagev1alpha1.DPUVolume {
	v := &storagev1alpha1.DPUVolume{Spec: storagev1alpha1.DPUVolumeSpec{DeadMount: mode, Replication: r}}
	if count > 0 {
		v.Status.Restarts = &storagev1alpha1.RestartState{Count: count, Last: metav1.NewTime(now.Add(-ago))}
	}
	return v
}

func TestDecide(t *testing.T) {
	const restart, tell = storagev1alpha1.DeadMountRestart, storagev1alpha1.DeadMountTell
	fence, off := &storagev1alpha1.Replication{Failover: storagev1alpha1.FailoverFence}, &storagev1alpha1.Replication{Failover: storagev1alpha1.FailoverOff}
	for name, c := range map[string]struct {
		v         *storagev1alpha1.DPUVolume
		returning int
		count     int32 // 0: nothing is deleted
		again     time.Duration
		words     string
		away      bool // its device is
	}{
		"its device is away":          {volume(restart, nil, 0, 0), 1, 0, 0, "once its device answers", true},
		"told alone, its device away": {volume(tell, nil, 0, 0), 1, 0, 0, "deadMount is Tell", true},
		"told alone":                  {volume(tell, fence, 0, 0), 1, 0, 0, "deadMount is Tell", false},
		"by default":                  {volume("", nil, 0, 0), 1, 0, 0, "deadMount is Tell", false},
		"by default, failover off":    {volume("", off, 0, 0), 1, 0, 0, "deadMount is Tell", false},
		"by default, failover":        {volume("", fence, 0, 0), 1, 1, 0, "are deleted", false},
		"asked for":                   {volume(restart, nil, 0, 0), 1, 1, 0, "are deleted", false},
		"a bare pod":                  {volume(restart, nil, 0, 0), 0, 0, 0, "no controller would make the pod anew", false},
		"again, too soon":             {volume(restart, nil, 1, 4*time.Second), 1, 0, 6 * time.Second, "once more", false},
		"again":                       {volume(restart, nil, 1, 10*time.Second), 1, 2, 0, "are deleted", false},
		"the fifth, too soon":         {volume(restart, nil, 4, time.Minute), 1, 0, time.Minute, "once more", false},
		"the fifth":                   {volume(restart, nil, 4, 2*time.Minute), 1, 5, 0, "are deleted", false},
		"a sixth":                     {volume(restart, nil, 5, 20*time.Minute), 1, 0, 40 * time.Minute, "deleted 5 times within an hour", false},
		"an hour later":               {volume(restart, nil, 5, time.Hour), 1, 1, 0, "are deleted", false},
		"a clock that has gone back":  {volume(restart, nil, 1, -time.Minute), 1, 0, 70 * time.Second, "once more", false},
		"told alone, after restarts":  {volume(tell, fence, 3, time.Second), 1, 0, 0, "deadMount is Tell", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(c.v, !c.away, c.returning, now)
			count := int32(0)
			if got.restart != nil {
				if count = got.restart.Count; !got.restart.Last.Time.Equal(now) {
					t.Errorf("counted at %s", got.restart.Last)
				}
			}
			if count != c.count || got.again != c.again || !strings.Contains(got.words, c.words) {
				t.Errorf("%d, again after %s: %s", count, got.again, got.words)
			}
		})
	}
}

package daemon

import (
	"slices"
	"testing"
	"time"
)

func TestPercentAfter(t *testing.T) {
	for _, tt := range []struct {
		name    string
		percent int
		since   time.Duration
		want    int
	}{
		{name: "work begins", percent: restPercent, since: 2 * time.Second, want: busyPercent},
		{name: "work goes on", percent: busyPercent, since: 9 * time.Second, want: busyPercent},
		{name: "work slows down", percent: busyPercent, since: 15 * time.Second, want: busyPercent},
		{name: "work ends", percent: busyPercent, since: 21 * time.Second, want: restPercent},
		{name: "rest goes on", percent: restPercent, since: 2 * time.Minute, want: restPercent},
		{name: "a little work at rest", percent: restPercent, since: 4 * time.Second, want: restPercent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentAfter(tt.percent, tt.since); got != tt.want {
				t.Errorf("percentAfter(%d, %s) = %d, want %d", tt.percent, tt.since, got, tt.want)
			}
		})
	}
}

// kept is where a test lets its garbage escape to.
var kept []byte

// TestCollectionsFollowTheWork: a process that makes nothing but garbage is found to be busy.
func TestCollectionsFollowTheWork(t *testing.T) {
	chosen := make(chan int, 1)
	c := &collections{percent: restPercent, count: automatic(), last: time.Now(), automatic: automatic, set: func(percent int) {
		select {
		case chosen <- percent:
		default: // it follows on when the test is over
		}
	}}
	c.follow()
	for deadline := time.After(time.Minute); ; {
		select {
		case percent := <-chosen:
			if percent != busyPercent {
				t.Errorf("it collects at %d %%", percent)
			}
			return
		case <-deadline:
			t.Fatal("it collects as at rest still")
		default:
			kept = make([]byte, 1<<20)
		}
	}
}

// TestCollections: each collection counts that the process did not ask for, from the one before.
func TestCollections(t *testing.T) {
	now, count := time.Unix(0, 0), uint64(7)
	var chosen []int
	c := &collections{percent: busyPercent, count: count, last: now, automatic: func() uint64 { return count }, set: func(percent int) { chosen = append(chosen, percent) }}
	for _, step := range []struct {
		after time.Duration
		asked bool // for by the process itself
	}{
		{after: time.Second},                           // as busy as before
		{after: 21 * time.Second},                      // at rest
		{after: time.Millisecond, asked: true},         // FreeOSMemory
		{after: 6 * time.Second}, {after: time.Minute}, // at rest still
		{after: 2 * time.Second}, {after: time.Second}, // busy
		{after: 12 * time.Second, asked: true},           // nothing new
		{after: 9 * time.Second}, {after: 2 * time.Hour}, // 21 s since the last one: at rest
	} {
		if now = now.Add(step.after); !step.asked {
			count++
		}
		c.ended(now)
	}
	if want := []int{restPercent, busyPercent, restPercent}; !slices.Equal(chosen, want) {
		t.Errorf("chosen is %v, want %v", chosen, want)
	}
}

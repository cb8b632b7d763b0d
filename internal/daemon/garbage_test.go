package daemon

import (
	"runtime/debug"
	"runtime/metrics"
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
		{name: "work begins", percent: restPercent, since: 200 * time.Millisecond, want: busyPercent},
		{name: "work goes on", percent: busyPercent, since: 800 * time.Millisecond, want: busyPercent},
		{name: "work slows down", percent: busyPercent, since: 4 * time.Second, want: busyPercent},
		{name: "work ends", percent: busyPercent, since: 11 * time.Second, want: restPercent},
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

// percentNow is what the runtime works with.
func percentNow() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestCollectionsFollowTheWork(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(restPercent))
	c := &collections{percent: restPercent, count: automatic(), last: time.Now()}
	c.follow()
	for deadline := time.Now().Add(time.Minute); percentNow() != busyPercent; {
		if time.Now().After(deadline) {
			t.Fatalf("a process that makes nothing but garbage collects at %d %% still", percentNow())
		}
		kept = make([]byte, 1<<20)
	}
}

func TestCollectionEnds(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	begin := time.Now()
	c := &collections{percent: busyPercent, count: automatic() - 1, last: begin}
	c.ended(begin.Add(restAbove + time.Second))
	if got := percentNow(); got != restPercent {
		t.Errorf("a process at rest collects at %d %%, want %d", got, restPercent)
	}
	c.count = automatic()
	c.ended(begin.Add(restAbove + time.Second + time.Millisecond))
	if c.percent != restPercent {
		t.Errorf("a collection that was asked for counts as work: %d %%", c.percent)
	}
}

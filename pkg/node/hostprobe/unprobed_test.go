package hostprobe

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// probesAt are probes each Interval, between two times in milliseconds.
func probesAt(from, to int) (out []int) {
	for ms := from; ms <= to; ms += int(Interval.Milliseconds()) {
		out = append(out, ms)
	}
	return out
}

// TestUnprobed: when a host asks for heartbeats, in milliseconds.
func TestUnprobed(t *testing.T) {
	for name, c := range map[string]struct {
		// probes are when probes come, and asleep is until when the host itself sleeps.
		probes []int
		asleep int
		want   []int
	}{
		"never probed":           {},
		"probed":                 {probes: probesAt(100, 4900)},
		"two probes are lost":    {probes: slices.Concat(probesAt(100, 500), probesAt(1100, 4900))},
		"the link is cut":        {probes: probesAt(100, 500), want: []int{1250, 1500, 1750, 2000, 2250, 2500, 2750, 3000}},
		"it is cut for a second": {probes: slices.Concat(probesAt(100, 500), probesAt(1400, 4900)), want: []int{1250}},
		"the host was asleep":    {probes: probesAt(100, 300), asleep: 2950, want: []int{3200, 3450, 3700, 3950, 4200, 4450, 4700, 4950}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				u, begin := NewUnprobed(DefaultTimeout, nil), time.Now()
				asks := u.Asks()
				for _, ms := range c.probes {
					time.AfterFunc(time.Duration(ms)*time.Millisecond, u.Probed)
				}
				time.Sleep(time.Duration(c.asleep) * time.Millisecond)
				go u.Run(ctx)
				var asked []int
				for ctx.Err() == nil {
					select {
					case <-asks:
						asked = append(asked, int(time.Since(begin).Milliseconds()))
					case <-ctx.Done():
					}
				}
				if !slices.Equal(asked, c.want) {
					t.Errorf("asked at %v ms, want %v", asked, c.want)
				}
			})
		})
	}
}

// TestUnprobedInTime: however a cut falls between the probes of the DPU and the looks of the host, a
// heartbeat comes within the 0.3 s before the DPU calls the host dead, and one after it.
func TestUnprobedInTime(t *testing.T) {
	for phase := time.Duration(0); phase < unprobedEvery; phase += 10 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			u := NewUnprobed(DefaultTimeout, nil)
			asks := u.Asks()
			go u.Run(ctx)
			time.Sleep(phase)
			var o opinion
			var asked []time.Duration
			begin, word := time.Now(), time.Duration(0)
			for n := 0; n < 20; n++ {
				p := Probe{Answer: Echoed, Began: time.Now()}
				if n < 3 {
					u.Probed()
				} else {
					p.Answer = Silence
				}
				for end := time.After(Interval); end != nil; {
					select {
					case <-asks:
						asked = append(asked, time.Since(begin))
					case <-end:
						end = nil
					}
				}
				p.Ended = time.Now()
				if o = o.next(p, Limits{Timeout: DefaultTimeout, Misses: DefaultMisses}); o.verdict == Dead && word == 0 {
					word = time.Since(begin)
				}
			}
			before := slices.ContainsFunc(asked, func(at time.Duration) bool { return at < word && word-at < 300*time.Millisecond })
			if word == 0 || !before || asked[len(asked)-1] <= word {
				t.Errorf("asked at %v, called dead at %s", asked, word)
			}
		})
	}
}

// cut is a link that is cut after some probes.
type cut struct {
	host   *Unprobed
	probes int
}

func (c *cut) Probe(ctx context.Context) (Answer, string) {
	if c.probes--; c.probes >= 0 {
		c.host.Probed()
		return Echoed, ""
	}
	<-ctx.Done()
	return Silence, ""
}

// TestUnprobedReads: however a cut falls between the probes of the DPU and the looks of the host, and
// though what the host reads then takes its time, its DPU knows by it that the host lives.
func TestUnprobedReads(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool
		takes time.Duration
		want  string
	}{
		"at once":          {true, 0, "the host is silent on the link, and does I/O"},
		"of 0.1 s":         {true, 100 * time.Millisecond, "the host is silent on the link, and does I/O"},
		"it reads nothing": {false, 0, "silence on the link to the host for 1s, 5 probes in a row"},
	} {
		t.Run(name, func(t *testing.T) {
			for phase := time.Duration(0); phase < unprobedEvery; phase += 10 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					if seen := seenAfterCut(t, phase, c.reads, c.takes); seen == nil || seen.Evidence != c.want || seen.Alive != c.reads {
						t.Errorf("cut %s after a look: %+v", phase, seen)
					}
				})
			}
		})
	}
}

// seenAfterCut is what a DPU sees of its host some seconds after the link was cut. Heartbeats of the host hang.
func seenAfterCut(t *testing.T, phase time.Duration, reads bool, takes time.Duration) *moorv1alpha1.HostObservation {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	u := NewUnprobed(DefaultTimeout, nil)
	u.Asks() // for heartbeats
	var read atomic.Int64
	if asks := u.Asks(); reads {
		go reader(ctx, asks, takes, &read)
	}
	go u.Run(ctx)
	time.Sleep(phase)
	dpu := NewWatcher(Options{Prober: &cut{host: u, probes: 3}, Paths: func(context.Context) []provisioner.Path {
		return []provisioner.Path{{Device: "v", Completed: read.Load()}}
	}})
	_ = dpu.Start(ctx)
	return dpu.Observed()
}

// reader reads whenever it is asked to.
func reader(ctx context.Context, asks <-chan struct{}, takes time.Duration, read *atomic.Int64) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asks:
			time.Sleep(takes)
			read.Add(1)
		}
	}
}

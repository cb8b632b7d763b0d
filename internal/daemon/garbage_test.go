package daemon

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSpareMemory(t *testing.T) {
	const mega = 1 << 20
	type look struct {
		// live, garbage and made since the look before, in MB.
		live, garbage, made uint64
	}
	rest, work := look{100, 10, 10}, look{100, 60, 60}
	for _, tt := range []struct {
		name  string
		looks []look
		want  []string
		// allowed is the garbage in the midst of work, in percent; nil: that of a heap that was
		// small when the process started.
		allowed []int
	}{
		{name: "a process that starts", looks: []look{work, work, work}},
		{name: "and comes to rest", looks: []look{work, rest, rest}, want: []string{"release"}},
		{name: "little garbage at rest", looks: []look{rest, {100, 25, 15}}, want: []string{"release"}},
		{name: "a quarter at rest", looks: []look{rest, {100, 20, 20}, {100, 26, 6}, {100, 6, 6}}, want: []string{"release", "collect"}},
		{name: "much garbage in the midst of work", looks: []look{rest, {100, 26, 26}, {100, 90, 64}}, want: []string{"release"}},
		{name: "and after it", looks: []look{rest, {100, 90, 90}, {100, 92, 2}, rest}, want: []string{"release", "release"}},
		{name: "as much as is still rest", looks: []look{rest, {100, 26, 24}}, want: []string{"release", "collect"}},
		{name: "a heap that stays small", looks: []look{{63, 60, 60}, {63, 60, 60}}, allowed: []int{50}},
		{name: "and grows and shrinks", looks: []look{{64, 60, 60}, {90, 60, 60}, {63, 60, 60}}, allowed: []int{50, 100, 50}},
		{name: "as much as is work", looks: []look{rest, {100, 26, 25}}, want: []string{"release"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var made uint64
				var got []string
				var allowed []int
				next := -1
				read := func() heap {
					if next++; next == 0 {
						return heap{live: mega, used: mega}
					}
					l := tt.looks[next-1]
					made += l.made * mega
					if next == len(tt.looks) {
						cancel()
					}
					return heap{live: l.live * mega, used: (l.live + l.garbage) * mega, made: made}
				}
				begin := time.Now()
				spare(ctx, collector{
					read: read, allow: func(percent int) { allowed = append(allowed, percent) },
					collect: func() { got = append(got, "collect") }, release: func() { got = append(got, "release") },
				})
				if tt.allowed == nil {
					tt.allowed = []int{50, 100}
				}
				if !slices.Equal(allowed, tt.allowed) {
					t.Errorf("allowed %v %% of garbage, want %v", allowed, tt.allowed)
				}
				if !slices.Equal(got, tt.want) || time.Since(begin) != time.Duration(len(tt.looks))*lookPeriod {
					t.Errorf("in %s: %v, want %v", time.Since(begin), got, tt.want)
				}
			})
		})
	}
}

// kept is where a test lets its garbage escape to.
var kept []byte

// TestReadHeap: the runtime tells what a collection makes of garbage.
func TestReadHeap(t *testing.T) {
	before := readHeap()
	for range 64 {
		kept = make([]byte, 1<<20)
	}
	kept = nil
	made := readHeap()
	if made.made-before.made < 64<<20 || made.used < made.live {
		t.Errorf("before %+v, after 64 MB %+v", before, made)
	}
}

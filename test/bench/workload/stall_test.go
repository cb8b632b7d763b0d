package workload

import (
	"testing"
	"time"
)

func TestStall(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds float64, line string) Ack {
		return Ack{base.Add(time.Duration(seconds * float64(time.Second))), line}
	}
	for _, c := range []struct {
		name string
		acks []Ack
		want time.Duration
		fail bool
	}{
		{name: "a pause that began before", acks: []Ack{at(-1, "u-i-d-0"), at(2, "u-i-d-1"), at(2.5, "u-i-d-2")}, want: 3 * time.Second},
		{name: "a longer one that was over", acks: []Ack{at(-9, "u-0"), at(-1, "u-1"), at(1, "u-2")}, want: 2 * time.Second},
		{name: "the longest is not the first", acks: []Ack{at(-1, "u-0"), at(1, "u-1"), at(5, "u-2")}, want: 4 * time.Second},
		{name: "a line has failed", acks: []Ack{at(-1, "u-0"), at(1, "u-2")}, fail: true},
		{name: "the first line has failed", acks: []Ack{at(-1, "u-1"), at(1, "u-2")}, fail: true},
		{name: "nothing since", acks: []Ack{at(-2, "u-0"), at(-1, "u-1")}, fail: true},
		{name: "nothing at all", fail: true},
		{name: "another text", acks: []Ack{at(-1, "u-0"), at(1, "u-x")}, fail: true},
	} {
		got, err := stall(c.acks, base)
		if got != c.want || (err != nil) != c.fail {
			t.Errorf("%s: %s, %v; want %s, an error: %v", c.name, got, err, c.want, c.fail)
		}
	}
}

package hostprobe

import (
	"strings"
	"testing"
	"time"
)

// looks makes a row of looks, one each Interval, from what is written:
// e echoed, a acknowledged, r refused, . silence, x unreachable, w silence during which
// it is found that the host had begun I/O 0.3 s before it, and Z a second during which
// the DPU itself slept.
func looks(row string) []Probe {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out []Probe
	for _, c := range row {
		if c == 'Z' {
			now = now.Add(time.Second)
			continue
		}
		var worked time.Time
		if c == 'w' {
			worked = now.Add(-300 * time.Millisecond)
		}
		out = append(out, Probe{
			Worked: worked,
			Answer: map[rune]Answer{'e': Echoed, 'a': Acknowledged, 'r': Refused, '.': Silence, 'x': Unreachable}[c],
			Began:  now, Ended: now.Add(Interval),
		})
		now = now.Add(Interval)
	}
	return out
}

func TestVerdict(t *testing.T) {
	limits := Limits{Timeout: DefaultTimeout, Misses: DefaultMisses}
	cases := map[string]struct {
		row     string
		limits  Limits
		verdict Verdict
		words   string
	}{
		"nothing seen":                   {"", limits, Unknown, ""},
		"never seen alive":               {"........................", limits, Unknown, ""},
		"never seen alive, no link":      {"xxxxxxxxxxxxxxxx", limits, Unknown, ""},
		"alive":                          {"..e", limits, Alive, "plugin answers"},
		"plugin dead":                    {"eeer", limits, Alive, "does not run"},
		"plugin dead from the beginning": {"rrrrrrrrrr", limits, Alive, "does not run"},
		"hung":                           {"eeeaaaaaaaaaaaaaa", limits, Alive, "hung"},
		"a beat lost":                    {"ee.e.e..e....", limits, Alive, "plugin answers"},
		"not silent for long enough":     {"e....", limits, Alive, "plugin answers"},
		"silent for long enough":         {"e.....", limits, Dead, "silence on the link to the host for 1s, 5 probes"},
		"no host there":                  {"exxxxx", limits, Dead, "the host cannot be reached"},
		"dying":                          {"er.....", limits, Dead, "silence"},
		"back":                           {"e......e", limits, Alive, "plugin answers"},
		"booting":                        {"e......r", limits, Alive, "does not run"},
		"dead for long":                  {"e............................", limits, Dead, "for 1s, 5 probes"},
		"the DPU slept":                  {"eZZZ....", limits, Alive, "plugin answers"},
		"the DPU slept in the silence":   {"e..ZZZ....", limits, Alive, "plugin answers"},
		"and then there was none":        {"e..ZZZ.....", limits, Dead, "silence"},
		"the look next to the timeout":   {"e.....", Limits{Timeout: 1100 * time.Millisecond, Misses: 1}, Dead, "for 1s, 5 probes"},
		"the one before it":              {"e....", Limits{Timeout: 1100 * time.Millisecond, Misses: 1}, Alive, "plugin answers"},
		"farther from it than half":      {"e.....", Limits{Timeout: 1101 * time.Millisecond, Misses: 1}, Alive, "plugin answers"},
		"then the one after it":          {"e......", Limits{Timeout: 1101 * time.Millisecond, Misses: 1}, Dead, "for 1.2s, 6 probes"},
		"too few looks":                  {"e.....", Limits{Timeout: time.Second, Misses: 6}, Alive, "plugin answers"},
		"enough of them":                 {"e......", Limits{Timeout: time.Second, Misses: 6}, Dead, "6 probes"},
		"it does I/O":                    {"e..www", limits, Alive, "silent on the link, and does I/O"},
		"and has to show it only then":   {"e..ww", limits, Alive, "plugin answers"},
		"known by the probe before":      {"e..ww.", limits, Alive, "does I/O"},
		"I/O as it died":                 {"e.ww..", limits, Dead, "silence on the link to the host for 1s"},
		"I/O before it fell silent":      {"ew....", limits, Dead, "for 1s, 5 probes"},
		"it pauses":                      {"e..www" + strings.Repeat(".", 47), limits, Alive, "does I/O"},
		"for too long":                   {"e..www" + strings.Repeat(".", 48), limits, Dead, "silence on the link to the host for 10.6s"},
		"it goes on after a pause":       {"e..www" + strings.Repeat(".", 40) + "w" + strings.Repeat(".", 40), limits, Alive, "does I/O"},
		"I/O in a silence that is over":  {"e..wwwe.....", limits, Dead, "for 1s, 5 probes"},
		"dead, and I/O is found late":    {"e.....w", limits, Dead, "for 1s, 5 probes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var o opinion
			for _, l := range looks(c.row) {
				o = o.next(l, c.limits)
			}
			if o.verdict != c.verdict || !strings.Contains(o.evidence, c.words) {
				t.Fatalf("got %d, %q; want %d, %q", o.verdict, o.evidence, c.verdict, c.words)
			}
		})
	}
}

// TestALookThatSleeps: the process is stopped in the middle of a look, and
// wakes to a deadline that has passed. That is no silence of the host.
func TestALookThatSleeps(t *testing.T) {
	limits := Limits{Timeout: DefaultTimeout, Misses: 1}
	var o opinion
	row := looks("e.")
	row[1].Ended = row[1].Began.Add(30 * time.Second)
	for _, l := range row {
		o = o.next(l, limits)
	}
	if o.verdict != Alive {
		t.Fatalf("got %d, %q", o.verdict, o.evidence)
	}
	now := row[1].Ended
	for range 5 {
		o = o.next(Probe{Began: now, Ended: now.Add(Interval)}, limits)
		now = now.Add(Interval)
	}
	if o.verdict != Dead {
		t.Fatalf("after a second of silence: %d, %q", o.verdict, o.evidence)
	}
}

// TestDeathNeedsBoth tries every row of 9 probes: no host is dead without a second of
// probes in a row that met silence, after an answer.
func TestDeathNeedsBoth(t *testing.T) {
	limits := Limits{Timeout: DefaultTimeout, Misses: DefaultMisses}
	const kinds = "e.r"
	for n := range 19683 { // 3 to the 9th
		row := ""
		for range 9 {
			row += string(kinds[n%3])
			n /= 3
		}
		var o opinion
		for _, l := range looks(row) {
			o = o.next(l, limits)
		}
		answer := strings.LastIndexAny(row, "er")
		want := Alive
		if answer < 0 {
			want = Unknown
		} else if len(row)-1-answer >= 5 {
			want = Dead
		}
		if o.verdict != want {
			t.Fatalf("%s: got %d, want %d", row, o.verdict, want)
		}
	}
}

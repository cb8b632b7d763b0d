package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/proof"
)

func TestParseLog(t *testing.T) {
	const text = "2026-01-02T03:04:05.123456789Z stdout F uid-0\n" +
		"2026-01-02T03:04:05.2Z stderr F dd: no\n" +
		"2026-01-02T03:04:05.3+00:00 stdout F uid-1\n" +
		"2026-01-02T03:04:05.4Z stdout F uid-" // still being written
	got, err := parseLog(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []Ack{{base.Add(123456789), "uid-0"}, {base.Add(300 * time.Millisecond), "uid-1"}}
	if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"garbage\n", "2026-01-02T03:04:05Z stdout P half\n", "yesterday stdout F x\n"} {
		if _, err := parseLog(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as a line of a container's log", bad)
		}
	}
}

// TestNews: each check looks at the whole history, and a violation counts once.
func TestNews(t *testing.T) {
	v := &Volume{told: map[proof.Rule]int{}}
	one := []proof.Violation{{Rule: proof.RuleOneWriter, Words: "a"}, {Rule: proof.RuleAcknowledged, Words: "b"}}
	for _, c := range []struct {
		name         string
		violations   []proof.Violation
		broken, lost int
	}{
		{"two new ones", one, 1, 1},
		{"the same again", one, 0, 0},
		{"one more of one rule", append(one, proof.Violation{Rule: proof.RuleOneWriter, Words: "c"}), 1, 0},
		{"a write beneath the log, and lines out of order", append(one, proof.Violation{Rule: proof.RuleBelow}, proof.Violation{Rule: proof.RuleOrder}), 1, 1},
	} {
		broken, lost := count(v.news(c.violations))
		if broken != c.broken || lost != c.lost {
			t.Errorf("%s: %d broken, %d lost; want %d and %d", c.name, broken, lost, c.broken, c.lost)
		}
	}
}

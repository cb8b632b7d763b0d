package paths

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// recent is for how long a loss is named in these tests.
const recent = 10 * time.Second

// connection is the way of device d over connections.
func connection(names string) provisioner.Path {
	return provisioner.Path{Device: "d", State: provisioner.PathConnected, Connections: names, InFlight: -1}
}

// watchedFor are ways that were watched for long when device d was seen first.
func watchedFor(names string) (*Ways, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	w := NewWays(recent, c)
	c.Step(time.Hour)
	w.Seen(connection(names))
	c.Step(time.Second)
	return w, c
}

// TestConnectionMadeAnew: a way that was lost and found between two looks is a loss that has ended, if its
// connection tells of it; also one of several ways, of which another was left.
func TestConnectionMadeAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		lost          bool
	}{
		"the same":               {"1", "1", false},
		"another":                {"1", "2", true},
		"one of two is lost":     {"1,2", "2", true},
		"one of two is another":  {"1,2", "2,3", true},
		"none is there":          {"1", "", false}, // its state tells
		"they are not told of":   {"", "", false},
		"they are told of first": {"", "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := watchedFor(tc.before)
			w.Seen(connection(tc.after))
			if loss := w.Loss("d"); (loss != "") != tc.lost {
				t.Fatalf("the loss is %q", loss)
			}
			c.Step(recent - time.Millisecond)
			if loss := w.Loss("d"); (loss != "") != tc.lost {
				t.Errorf("a while after it the loss is %q", loss)
			}
			w.Seen(connection(tc.after))
			c.Step(recent)
			if loss := w.Loss("d"); loss != "" {
				t.Errorf("long after it the loss is %q", loss)
			}
			if lost, all := w.Lost(); len(lost) != 0 || all {
				t.Errorf("%v counts as lost", lost)
			}
		})
	}
}

// TestEachNewConnectionIsALoss of its own: what is drained of one is not drained of the next. So is one
// that is found after it was seen to be lost.
func TestEachNewConnectionIsALoss(t *testing.T) {
	w, c := watchedFor("1")
	names := map[string]bool{}
	for _, connections := range []string{"2", "3", "4"} {
		w.Seen(connection(connections))
		names[w.Loss("d")] = true
		c.Step(time.Second)
	}
	w.Seen(provisioner.Path{Device: "d", State: provisioner.PathReconnecting})
	names[w.Loss("d")] = true
	c.Step(time.Second)
	w.Seen(connection("5"))
	names[w.Loss("d")] = true
	if len(names) != 5 || names[""] {
		t.Errorf("five losses are %v", names)
	}
}

// TestOpenedAnew: that a vendor opens or removes a device is no loss.
func TestOpenedAnew(t *testing.T) {
	w, _ := watchedFor("1")
	w.Anew("d")
	w.Anew("another")
	w.Seen(connection("2"))
	if loss := w.Loss("d"); loss != "" {
		t.Errorf("the loss is %q", loss)
	}
	w.Seen(connection("3"))
	if w.Loss("d") == "" {
		t.Error("the next connection is not noticed")
	}
}

// TestNotWatchedBefore: what was lost and found just before this process began is not known.
func TestNotWatchedBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		path provisioner.Path
		lost bool
	}{
		"it tells of connections": {connection("1"), true},
		"it tells of none":        {connection(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(time.Unix(1000, 0))
			w := NewWays(recent, c)
			w.Seen(tc.path)
			loss := w.Loss("d")
			c.Step(recent - time.Millisecond)
			if again := w.Loss("d"); (loss != "") != tc.lost || again != loss {
				t.Errorf("the loss is %q, and then %q", loss, again)
			}
			c.Step(time.Millisecond)
			if loss := w.Loss("d"); loss != "" {
				t.Errorf("it is watched for long, and the loss is %q", loss)
			}
		})
	}
}

package hostdev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		want    bool
	}{
		"well":                      {"rw relatime|rw seclabel", false},
		"read-only, as was wanted":  {"ro relatime|ro", false},
		"a read-only bind of it":    {"ro relatime|rw", false},
		"6.15: after an error":      {"rw relatime|rw emergency_ro", true},
		"6.15: shut down":           {"rw relatime|rw shutdown", true},
		"before 6.12: after error":  {"rw relatime|ro", true},
		"an option that begins so":  {"rw|rw shutdown_timeout=3", false},
		"read-only and then failed": {"ro|ro emergency_ro", true},
	} {
		t.Run(name, func(t *testing.T) {
			mount, super, _ := strings.Cut(c.options, "|")
			if got := GivenUp(strings.Fields(mount), strings.Fields(super)); (got != "") != c.want {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestReads: a device that hangs is told of within the bound, asked no second time while
// the first read lasts, and answers again once that has ended.
func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "device")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		answer := make(chan error)
		r := &Reads{Within: 5 * time.Second, Read: func(string) error { asked.Add(1); return <-answer }}
		began := time.Now()
		for _, want := range []time.Duration{5 * time.Second, 5 * time.Second} {
			if err := r.Readable(path); !errors.Is(err, ErrHung) || time.Since(began) != want || asked.Load() != 1 {
				t.Fatalf("after %s, asked %d times: %v", time.Since(began), asked.Load(), err)
			}
		}
		answer <- errors.New("input/output error")
		synctest.Wait()
		go func() { answer <- nil }()
		if err := r.Readable(path); err != nil || asked.Load() != 2 {
			t.Errorf("asked %d times: %v", asked.Load(), err)
		}
		if err := r.Readable(filepath.Join(t.TempDir(), "none")); err == nil {
			t.Error("a device that is not there answers")
		}
	})
}

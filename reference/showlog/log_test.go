package showlog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLog: what is recorded is read back, over a restart of the service, of one volume alone.
func TestLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if got, err := Read(dir, "a"); err != nil || len(got) != 0 {
		t.Fatalf("with no log: %v, %v", got, err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(dpu string) *Log {
		t.Helper()
		l, err := Open(dir, dpu)
		do(err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, two := open("dpu-1"), open("dpu-2")
	do(one.Shown("a"))
	do(one.Shown("b"))
	do(one.Hidden("a"))
	do(two.Shown("a"))
	do(one.Shown("a"))
	open("dpu-1") // killed, and started again
	do(os.WriteFile(filepath.Join(dir, "a.img.log"), []byte("of another kind"), 0o600))
	got, err := Read(dir, "a")
	do(err)
	var tell []string
	for i, e := range got {
		if e.Begin <= 0 || e.Ended && e.End < e.Begin || i > 0 && e.Begin < got[i-1].Begin {
			t.Errorf("times of %+v", e)
		}
		how := " goes on"
		if e.Ended {
			how = " ended"
		}
		tell = append(tell, e.DPU+how)
	}
	if want := []string{"dpu-1 ended", "dpu-2 goes on", "dpu-1 ended"}; !slices.Equal(tell, want) {
		t.Errorf("got %v, want %v", tell, want)
	}
}

// TestParse: a record with a hole is never taken for a good one.
func TestParse(t *testing.T) {
	const start = `{"monotonic":1,"event":"began"}` + "\n"
	for name, tc := range map[string]struct {
		log  string
		want []Exposure
		err  string
	}{
		"nothing":          {},
		"begins and ends":  {log: start + `{"monotonic":2,"event":"shown","volume":"a"}{"monotonic":3,"event":"hidden","volume":"a"}`, want: []Exposure{{"d", 2, 3, true}}},
		"of another":       {log: start + `{"monotonic":2,"event":"shown","volume":"b"}`},
		"no beginning":     {log: `{"monotonic":2,"event":"shown","volume":"a"}`, err: "first record"},
		"backwards":        {log: start + `{"monotonic":0,"event":"shown","volume":"a"}`, err: "the one before it"},
		"torn":             {log: start + `{"monotonic":2,"event":"sho`, err: "record 2"},
		"at two places":    {log: start + strings.Repeat(`{"monotonic":2,"event":"shown","volume":"a"}`, 2) + `{"monotonic":3,"event":"hidden","volume":"a"}`, want: []Exposure{{"d", 2, 0, false}}},
		"and at none":      {log: start + strings.Repeat(`{"monotonic":2,"event":"shown","volume":"a"}`, 2) + strings.Repeat(`{"monotonic":3,"event":"hidden","volume":"a"}`, 2), want: []Exposure{{"d", 2, 3, true}}},
		"killed":           {log: start + strings.Repeat(`{"monotonic":2,"event":"shown","volume":"a"}`, 2) + strings.Replace(start, "1", "4", 1), want: []Exposure{{"d", 2, 4, true}}},
		"hidden unshown":   {log: start + `{"monotonic":2,"event":"hidden","volume":"a"}`, err: "was not shown"},
		"an unknown event": {log: start + `{"monotonic":2,"event":"perhaps","volume":"a"}`, err: "perhaps"},
		"an unknown field": {log: start + `{"monotonic":2,"event":"shown","disk":"a"}`, err: "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.NewReader(tc.log), "d", "a")
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"monotonic":1,"event":"began"}{"monotonic":2,"event":"shown","volume":"a"}{"monotonic":3,"event":"hidden","volume":"a"}`)
	f.Fuzz(func(t *testing.T, log string) {
		got, err := parse(strings.NewReader(log), "d", "a")
		for i, e := range got {
			if err != nil || !e.Ended && i != len(got)-1 || e.Ended && e.End < e.Begin || e.Begin < time.Duration(0) {
				t.Fatalf("%q: %+v, %v", log, got, err)
			}
		}
	})
}

package database

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }

func TestJudge(t *testing.T) {
	acknowledged := []Commit{{Row: 1, At: at(0)}, {Row: 3, At: at(1)}}
	whole := func(number int64) Row { return Row{Number: number, Times: 1, Whole: true} }
	for name, tt := range map[string]struct {
		rows []Row
		want []string
	}{
		"all are there":                     {rows: []Row{whole(1), whole(3)}},
		"one that was not acknowledged too": {rows: []Row{whole(1), whole(2), whole(3)}},
		"one is lost":                       {rows: []Row{whole(1), whole(2)}, want: []string{"row 3 is lost, whose commit was acknowledged at 2026-01-02T03:04:06Z"}},
		"all are lost":                      {want: []string{"row 1 is lost, whose commit was acknowledged at 2026-01-02T03:04:05Z", "row 3 is lost, whose commit was acknowledged at 2026-01-02T03:04:06Z"}},
		"one is there twice":                {rows: []Row{whole(1), {Number: 3, Times: 2, Whole: true}}, want: []string{"row 3 is there 2 times"}},
		"one is there twice that was not acknowledged": {rows: []Row{whole(1), {Number: 2, Times: 2, Whole: true}, whole(3)}, want: []string{"row 2 is there 2 times"}},
		"one has other content":                        {rows: []Row{whole(1), {Number: 3, Times: 1}}, want: []string{"row 3 is not what was sent"}},
		"one was never sent":                           {rows: []Row{whole(1), whole(3), whole(5)}, want: []string{"row 5 is there, and was not sent"}},
		"one has no number that is sent":               {rows: []Row{whole(0), whole(1), whole(3)}, want: []string{"row 0 is there, and was not sent"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Judge(acknowledged, 4, tt.rows)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLedger(t *testing.T) {
	var l Ledger
	if l.Trouble() != nil || l.Pause(begin) != 0 || l.BegunSince(begin) != 0 || l.Sent() != 0 {
		t.Error("an empty ledger tells of commits")
	}
	// Acknowledgements of several connections may be recorded in another order than that of their times.
	for _, c := range []Commit{
		{Begun: at(0), At: at(1)}, {Begun: at(2), At: at(9)}, {Begun: at(2), At: at(3)}, {Begun: at(10), At: at(10.5)},
	} {
		c.Row = l.Next()
		l.Acknowledge(c)
	}
	why := errors.New("connection reset")
	if l.Fail(why); l.Trouble() != why { //nolint:errorlint // the very one
		t.Errorf("the trouble is %v", l.Trouble())
	}
	unknown := l.Next()
	if unknown != 5 || l.Sent() != 5 || len(l.Acknowledged()) != 4 {
		t.Errorf("row %d of %d, %d acknowledged", unknown, l.Sent(), len(l.Acknowledged()))
	}
	for from, want := range map[float64]int{0: 4, 2: 3, 2.5: 1, 10: 1, 11: 0} {
		if got := l.BegunSince(at(from)); got != want {
			t.Errorf("%d were begun since %v s, want %d", got, from, want)
		}
	}
	for from, want := range map[float64]time.Duration{0: 6 * time.Second, 8: 6 * time.Second, 9: 1500 * time.Millisecond, 11: 0} {
		if got := l.Pause(at(from)); got != want {
			t.Errorf("the longest pause after %v s is %v, want %v", from, got, want)
		}
	}
}

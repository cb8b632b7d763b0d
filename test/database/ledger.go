// Package database commits rows to a PostgreSQL from outside its cluster, records which
// commits were acknowledged, and judges what is read back.
package database

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Commit is a row whose commit was acknowledged.
type Commit struct {
	Row int64
	// Begun is when it was sent, At when the acknowledgement came.
	Begun, At time.Time
}

// Ledger is what clients of a database have sent, and what they were told. The zero value is
// empty. It may be used by several clients at the same time.
type Ledger struct {
	mu           sync.Mutex
	sent         int64
	acknowledged []Commit
	trouble      error
}

// Next is the number of a row that no other has. It is not sent again if what becomes of
// its commit stays unknown, or there could be two of it rightly.
func (l *Ledger) Next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	return l.sent
}

// Acknowledge records that a commit was acknowledged.
func (l *Ledger) Acknowledge(c Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledged = append(l.acknowledged, c)
}

// Fail records why a connection was given up.
func (l *Ledger) Fail(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = why
}

// Trouble is why a connection was given up last; nil if none was.
func (l *Ledger) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// Sent is how many rows were sent.
func (l *Ledger) Sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// Acknowledged are the commits so far that were acknowledged.
func (l *Ledger) Acknowledged() []Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.acknowledged)
}

// BegunSince is how many of the commits that were sent at this time or later were acknowledged.
func (l *Ledger) BegunSince(from time.Time) int {
	n := 0
	for _, c := range l.Acknowledged() {
		if !c.Begun.Before(from) {
			n++
		}
	}
	return n
}

// Pause is the longest time from one acknowledgement to the next one that came after from.
// It is 0 if none came.
func (l *Ledger) Pause(from time.Time) time.Duration {
	all := l.Acknowledged()
	slices.SortFunc(all, func(a, b Commit) int { return a.At.Compare(b.At) })
	var longest time.Duration
	for i := 1; i < len(all); i++ {
		if all[i].At.After(from) {
			longest = max(longest, all[i].At.Sub(all[i-1].At))
		}
	}
	return longest
}

// Row is what a database has of the rows with one number.
type Row struct {
	Number int64
	// Times is how many there are, Whole whether each holds what was sent.
	Times int64
	Whole bool
}

// Judge says what is wrong with rows that were read when these commits were acknowledged
// already, and no more than sent rows were sent when it was over. Each acknowledged row has to be there, each row at most
// once and as it was sent, and none that was not sent.
func Judge(acknowledged []Commit, sent int64, rows []Row) []string {
	var wrong []string
	there := make(map[int64]bool, len(rows))
	for _, r := range rows {
		there[r.Number] = true
		if r.Times != 1 {
			wrong = append(wrong, fmt.Sprintf("row %d is there %d times", r.Number, r.Times))
		}
		if !r.Whole {
			wrong = append(wrong, fmt.Sprintf("row %d is not what was sent", r.Number))
		}
		if r.Number < 1 || r.Number > sent {
			wrong = append(wrong, fmt.Sprintf("row %d is there, and was not sent", r.Number))
		}
	}
	for _, c := range acknowledged {
		if !there[c.Row] {
			wrong = append(wrong, fmt.Sprintf("row %d is lost, whose commit was acknowledged at %s", c.Row, c.At.UTC().Format(time.RFC3339Nano)))
		}
	}
	return wrong
}

package main

import (
	"time"

	"github.com/moor-storage/moor/test/bench/results"
)

// series collects the samples of one measurement.
type series struct {
	results.Series
	// in is the invocation.
	in string
}

// series is the one of that name; it is begun if there is none. One that gets no
// sample is told of as a failure.
func (b *bench) series(name, unit string, kind results.Kind) *series {
	for _, s := range b.measured {
		if s.Name == name {
			return s
		}
	}
	s := &series{Series: results.Series{Name: name, Unit: unit, Value: kind}, in: b.invocation}
	b.measured = append(b.measured, s)
	return s
}

// add adds samples that were just taken.
func (s *series) add(values ...float64) {
	for _, v := range values {
		s.addAt(time.Now(), v)
	}
}

func (s *series) addAt(at time.Time, value float64) {
	s.Samples = append(s.Samples, results.Measured(s.in, at, value))
}

// fail adds a run that failed.
func (s *series) fail(err error) {
	s.Samples = append(s.Samples, results.Failed(s.in, err))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// checked counts one check of what must never happen, and what it found.
func (b *bench) checked(violations, lost int) {
	b.series(results.SafetyViolations+"."+b.mode, results.Count, results.Sum).add(float64(violations))
	b.series(results.SafetyLost+"."+b.mode, results.Count, results.Sum).add(float64(lost))
}

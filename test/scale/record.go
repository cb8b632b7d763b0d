package main

import (
	"slices"
	"time"

	"github.com/moor-storage/moor/test/bench/results"
)

// record collects what is measured.
type record struct {
	file       results.File
	invocation string
	// prefix begins every name.
	prefix string
}

func newRecord(prefix string, of results.Invocation) *record {
	in := results.NewInvocation()
	return &record{invocation: in, prefix: prefix, file: results.File{Invocations: map[string]results.Invocation{in: of}}}
}

// result is what a series measures.
type result struct {
	name, unit string
	kind       results.Kind
}

// series is the one of a result; it is begun if there is none.
func (r *record) series(of result) *results.Series {
	name := r.prefix + of.name
	i := slices.IndexFunc(r.file.Series, func(s results.Series) bool { return s.Name == name })
	if i < 0 {
		i = len(r.file.Series)
		r.file.Series = append(r.file.Series, results.Series{Name: name, Unit: of.unit, Value: of.kind})
	}
	return &r.file.Series[i]
}

// add adds samples that were just taken.
func (r *record) add(of result, values ...float64) {
	s := r.series(of)
	for _, v := range values {
		s.Samples = append(s.Samples, results.Measured(r.invocation, time.Now(), v))
	}
}

// took adds a time, or the run that failed.
func (r *record) took(of result, d time.Duration, err error) {
	if err != nil {
		r.fail(of, err)
		return
	}
	r.add(of, float64(d)/float64(time.Millisecond))
}

// fail adds a run that failed.
func (r *record) fail(of result, err error) {
	s := r.series(of)
	s.Samples = append(s.Samples, results.Failed(r.invocation, err))
}

func millis(name string) result { return result{name, results.Millis, results.Median} }

func count(name string) result { return result{name, results.Count, results.Worst} }

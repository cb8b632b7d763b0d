package results

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Kind is how a value follows from samples.
type Kind string

// The kinds.
const (
	Median Kind = "median"
	Mean   Kind = "mean"
	// Worst is the largest sample, Least the smallest.
	Worst Kind = "worst"
	Least Kind = "least"
	// Sum is for counts of what must never happen.
	Sum Kind = "sum"
	// Ratio is of the medians of two other series, see Summaries.
	Ratio Kind = "ratio"
)

// Units of results.
const (
	Millis      = "ms"
	Micros      = "us"
	Writes      = "writes"
	Megabytes   = "MB"
	Allocations = "allocations"
	Rate        = "pods/s"
	PerSecond   = "1/s"
	Share       = "%"
	Count       = "count"
	NoUnit      = "ratio"
)

// Summary is what follows from a series.
type Summary struct {
	Name, Unit string
	Kind       Kind
	// Runs is how many samples P50 and P99 are of, Failed how many runs failed,
	// which are not among them.
	Runs, Failed int
	// P50 and P99 are percentiles by nearest rank: always a sample.
	P50, P99 float64
	// Value is what is held against the target.
	Value float64
	// Commits are what was measured, with -dirty where the checkout had
	// changes.
	Commits []string
	// First and Last are when.
	First, Last time.Time

	samples []float64
}

// Summaries are those of all series of the file, and what follows from several:
// a name that ends in .ratio from .replica and .cold before the mode, and the
// counts of safety over all modes.
func (f File) Summaries() []Summary {
	var out []Summary
	for _, s := range f.Series {
		out = append(out, f.summarize(s))
	}
	return append(append(out, ratios(out)...), totals(out)...)
}

func (f File) summarize(s Series) Summary {
	out := Summary{Name: s.Name, Unit: s.Unit, Kind: s.Value}
	for _, sample := range s.Samples {
		out.note(f.Invocations[sample.In].Name(), sample.At)
		if sample.Failed != "" {
			out.Failed++
			continue
		}
		out.Runs++
		out.samples = append(out.samples, sample.Value)
	}
	out.P50, out.P99 = percentile(out.samples, 0.5), percentile(out.samples, 0.99)
	out.Value = s.Value.of(out.samples)
	return out
}

func (s *Summary) note(commit string, at time.Time) {
	if !slices.Contains(s.Commits, commit) {
		s.Commits = append(s.Commits, commit)
	}
	if s.First.IsZero() || at.Before(s.First) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
}

// of is the value of the samples; 0 of none.
func (k Kind) of(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range samples {
		sum += x
	}
	switch k {
	case Mean:
		return Round(sum / float64(len(samples)))
	case Worst:
		return Round(slices.Max(samples))
	case Least:
		return Round(slices.Min(samples))
	case Sum:
		return Round(sum)
	}
	return percentile(samples, 0.5)
}

// percentile is the smallest sample that at least the share p (0..1) of all
// samples does not exceed (nearest rank); 0 of none.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return Round(sorted[min(max(rank, 1), len(sorted))-1])
}

// ratios compares each series of drains with a replica with its like without.
func ratios(all []Summary) []Summary {
	var out []Summary
	for _, with := range all {
		before, mode, found := strings.Cut(with.Name, ".replica")
		if !found || !strings.HasPrefix(before, "failover.drain") {
			continue
		}
		i := slices.IndexFunc(all, func(s Summary) bool { return s.Name == before+".cold"+mode })
		if i < 0 || all[i].P50 == 0 {
			continue
		}
		ratio := Round(with.P50 / all[i].P50)
		both := Summary{Name: before + ".ratio" + mode, Unit: NoUnit, Kind: Ratio, Runs: min(with.Runs, all[i].Runs), Value: ratio}
		both.join(with)
		both.join(all[i])
		out = append(out, both)
	}
	return out
}

// Names of the counts of safety; with the mode behind them, those of one mode.
const (
	SafetyViolations = "safety.violations"
	SafetyLost       = "safety.lost_writes"
)

// totals adds the counts of all modes.
func totals(all []Summary) []Summary {
	var out []Summary
	for _, name := range []string{SafetyViolations, SafetyLost} {
		sum := Summary{Name: name, Unit: Count, Kind: Sum}
		for _, s := range all {
			if strings.HasPrefix(s.Name, name+".") {
				sum.Runs += s.Runs
				sum.Value += s.Value
				sum.join(s)
			}
		}
		if len(sum.Commits) > 0 {
			out = append(out, sum)
		}
	}
	return out
}

// join takes over what s is of.
func (s *Summary) join(with Summary) {
	for _, commit := range with.Commits {
		s.note(commit, with.First)
		s.note(commit, with.Last)
	}
}

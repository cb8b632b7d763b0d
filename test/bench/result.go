package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Units of results.
const (
	unitMillis = "ms"
	unitWrites = "writes"
	unitBytes  = "MB"
	unitMicros = "us"
	unitAllocs = "allocations"
	unitRate   = "pods/s"
	unitShare  = "%"
	unitRatio  = "ratio"
	unitCount  = "count"
)

// Result is one number of a benchmark. The file of results is a JSON array of
// these, and each carries machine and commit, so that elements of several
// files can be put into one list and still be told apart.
type Result struct {
	Name string `json:"name"`
	// Unit is one of the constants above; writes are per attach and detach, MB
	// are 10^6 bytes.
	Unit string `json:"unit"`
	// Runs is how many samples P50 and P99 are of; warm-ups are not among them.
	Runs int `json:"runs"`
	// P50 and P99 are percentiles by nearest rank: always a sample.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	// Value is the number that is held against the target: the median, but
	// the mean of API writes, and the worst of *.all and rss.*.
	Value float64 `json:"value"`
	// Failed is how many runs failed, which are not among Runs.
	Failed int `json:"failed,omitempty"`
	// Machine and Commit say where and of what.
	Machine string `json:"machine"`
	Commit  string `json:"commit"`
}

// median makes a result whose value is the median.
func median(name, unit string, samples []float64) Result {
	r := summarize(name, unit, samples)
	r.Value = r.P50
	return r
}

// worst makes a result whose value is the largest sample.
func worst(name, unit string, samples []float64) Result {
	r := summarize(name, unit, samples)
	r.Value = percentile(samples, 1)
	return r
}

// mean makes a result whose value is the mean.
func mean(name, unit string, samples []float64) Result {
	r := summarize(name, unit, samples)
	sum := 0.0
	for _, s := range samples {
		sum += s
	}
	if len(samples) > 0 {
		r.Value = round(sum / float64(len(samples)))
	}
	return r
}

func summarize(name, unit string, samples []float64) Result {
	return Result{Name: name, Unit: unit, Runs: len(samples), P50: percentile(samples, 0.5), P99: percentile(samples, 0.99)}
}

// percentile is the smallest sample that at least the share p (0..1) of all
// samples does not exceed (nearest rank); 0 of none.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return round(sorted[min(max(rank, 1), len(sorted))-1])
}

// round keeps two digits: more than any of the measurements is good for.
func round(x float64) float64 { return math.Round(x*100) / 100 }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// save writes the results to DIR/<date>-<name>.json and returns the path. In a
// file of the same day and name, results of the same names are replaced and
// others stay, so that parts can be measured one after the other.
func save(dir, name string, now time.Time, results []Result) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of results: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s.json", now.UTC().Format(time.DateOnly), name))
	old, err := load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	text, err := json.MarshalIndent(merge(old, results), "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the results: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	return path, nil
}

// load reads a file of results.
func load(path string) ([]Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	var out []Result
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("read the results of %s: %w", path, err)
	}
	return out, nil
}

// merge puts fresh results in the places of old ones of their names, or at the
// end, and adds up what is counted over all modes.
func merge(old, fresh []Result) []Result {
	out := slices.Clone(old)
	put := func(r Result) {
		if i := slices.IndexFunc(out, func(o Result) bool { return o.Name == r.Name }); i >= 0 {
			out[i] = r
			return
		}
		out = append(out, r)
	}
	for _, r := range fresh {
		put(r)
	}
	for _, r := range total(out) {
		put(r)
	}
	return out
}

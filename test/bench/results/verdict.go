package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// KnownMisses are targets that are known to be missed, each with the reason, by
// the name of the result.
type KnownMisses map[string]string

// LoadKnownMisses reads a file of them: a JSON object of name and reason. What
// must never happen cannot be known.
func LoadKnownMisses(path string) (KnownMisses, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the known misses: %w", err)
	}
	var known KnownMisses
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&known); err != nil {
		return nil, fmt.Errorf("read the known misses of %s: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		switch {
		case strings.HasPrefix(name, "safety."):
			return nil, fmt.Errorf("read the known misses of %s: %s must never be missed", path, name)
		case !TargetOf(name).Bounds():
			return nil, fmt.Errorf("read the known misses of %s: %s has no target", path, name)
		case known[name] == "":
			return nil, fmt.Errorf("read the known misses of %s: %s has no reason", path, name)
		}
	}
	return known, nil
}

// Verdict says how a result stands to its target: "ok" or "MISSED", whether that
// is within the noise of the runs, and how many failed.
func (k KnownMisses) Verdict(s Summary) string {
	var out []string
	t := TargetOf(s.Name)
	switch {
	case s.Runs == 0:
		out = append(out, "NO RUNS")
	case !t.Bounds():
	case t.met(s):
		out = append(out, "ok"+doubt(t, s))
	case k[s.Name] != "":
		out = append(out, "missed as known"+doubt(t, s))
	default:
		out = append(out, "MISSED"+doubt(t, s))
	}
	if s.Failed > 0 {
		out = append(out, fmt.Sprintf("%d of %d runs FAILED", s.Failed, s.Runs+s.Failed))
	}
	return strings.Join(out, ", ")
}

// Problems are the reasons for which the results are not good: a breach of
// safety, a failed run, nothing measured, or a missed target that is not known.
func (k KnownMisses) Problems(all []Summary) error {
	var out []error
	for _, s := range all {
		switch t := TargetOf(s.Name); {
		case s.Runs == 0:
			out = append(out, fmt.Errorf("%s: no run succeeded", s.Name))
		case t.Bounds() && !t.met(s) && k[s.Name] == "":
			out = append(out, fmt.Errorf("%s: missed the target %s: it is %s %s, p99 %s", s.Name, t, number(s.Value), s.Unit, number(s.P99)))
		}
		if s.Failed > 0 {
			out = append(out, fmt.Errorf("%s: %d of %d runs failed", s.Name, s.Failed, s.Runs+s.Failed))
		}
	}
	return errors.Join(out...)
}

// Met are the known misses that are met.
func (k KnownMisses) Met(all []Summary) []string {
	var out []string
	for _, s := range all {
		if k[s.Name] != "" && s.Runs > 0 && TargetOf(s.Name).met(s) {
			out = append(out, s.Name)
		}
	}
	return out
}

// level is how unlikely a share of the runs must be for the median to count as
// on one side of the target.
const level = 0.05

// doubt says what the runs do not show. For a median that is the sign test: if
// the true median were the target, this many runs on its side would not be
// rare. A 99th percentile of less than 100 runs is the slowest of them.
func doubt(t Target, s Summary) string {
	var out string
	if s.Kind == Median && (t.most != nil || t.least != nil) {
		within := 0
		for _, x := range s.samples {
			if t.within(x) {
				within++
			}
		}
		side := within
		if !t.within(s.Value) {
			side = s.Runs - within
		}
		if atLeastOf(side, s.Runs) > level {
			out = fmt.Sprintf(" within noise: %d of %d runs are inside", within, s.Runs)
		}
	}
	if t.p99 != nil && s.Runs < 100 {
		out += fmt.Sprintf(" (p99: the slowest of %d)", s.Runs)
	}
	return out
}

// atLeastOf is the chance of k or more heads of n coins.
func atLeastOf(k, n int) float64 {
	sum := 0.0
	for i := k; i <= n; i++ {
		sum += math.Exp(logFactorial(n) - logFactorial(i) - logFactorial(n-i) - float64(n)*math.Ln2)
	}
	return sum
}

func logFactorial(n int) float64 {
	out, _ := math.Lgamma(float64(n + 1))
	return out
}

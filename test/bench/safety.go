package main

import (
	"strings"

	"github.com/moor-storage/moor/test/proof"
)

// safety counts what must never happen, over all runs.
type safety struct {
	// checked is how many histories of volumes were held against the rules.
	checked          int
	violations, lost int
}

// count counts a rule that was broken: an acknowledged write that is lost, or
// a breach of the rule of one writer.
func (s *safety) count(rule proof.Rule) {
	if rule == proof.RuleAcknowledged || rule == proof.RuleOrder {
		s.lost++
		return
	}
	s.violations++
}

// Names of the safety results; with the mode behind them, those of one mode.
const (
	safetyViolations = "safety.violations"
	safetyLost       = "safety.lost_writes"
)

// results are those of one mode; nil if nothing was checked.
func (s *safety) results(mode string) []Result {
	if s.checked == 0 {
		return nil
	}
	return []Result{
		{Name: safetyViolations + "." + mode, Unit: unitCount, Runs: s.checked, Value: float64(s.violations)},
		{Name: safetyLost + "." + mode, Unit: unitCount, Runs: s.checked, Value: float64(s.lost)},
	}
}

// total adds the counts of all modes among the results.
func total(results []Result) []Result {
	var out []Result
	for _, name := range []string{safetyViolations, safetyLost} {
		sum := Result{Name: name, Unit: unitCount}
		for _, r := range results {
			if strings.HasPrefix(r.Name, name+".") {
				sum.Runs += r.Runs
				sum.Value += r.Value
				sum.Machine, sum.Commit = r.Machine, r.Commit
			}
		}
		if sum.Runs > 0 {
			out = append(out, sum)
		}
	}
	return out
}

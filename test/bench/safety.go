package main

import (
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/proof"
)

// losesWrites reports whether a broken rule means that an acknowledged write is
// lost; any other is a breach of the rule of one writer.
func losesWrites(rule proof.Rule) bool {
	return rule == proof.RuleAcknowledged || rule == proof.RuleOrder
}

// checked counts one check of what must never happen, and what it found.
func (b *bench) checked(violations, lost int) {
	b.series(results.SafetyViolations+"."+b.mode, results.Count, results.Sum).add(float64(violations))
	b.series(results.SafetyLost+"."+b.mode, results.Count, results.Sum).add(float64(lost))
}

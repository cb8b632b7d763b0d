package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// report prints what is in a JSON report of ginkgo. It is an error if a spec
// failed, was not reached, or if there was none.
func report(out io.Writer, path string, skips []skip) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the suite's report: %w", err)
	}
	var suites []types.Report
	if err := json.Unmarshal(raw, &suites); err != nil {
		return fmt.Errorf("read the suite's report %s: %w", path, err)
	}
	r := outcome{skipped: map[string]int{}}
	for _, s := range suites {
		r.count(s, skips)
	}
	r.print(out)
	if bad := len(r.failed) + len(r.missed); bad > 0 || r.passed == 0 {
		return fmt.Errorf("%d specs failed, %d were not reached, %d passed", len(r.failed), len(r.missed), r.passed)
	}
	return nil
}

// outcome is what came of the specs that were asked for.
type outcome struct {
	passed int
	// failed are names and reasons, missed the names of specs that the suite
	// ended before.
	failed, missed []string
	// skipped is how many were skipped for which reason.
	skipped map[string]int
}

// count adds the specs of a report. One that was skipped without a word is on
// the list, or was not asked for, or the suite ended before it.
func (r *outcome) count(suite types.Report, skips []skip) {
	for _, s := range suite.SpecReports {
		switch {
		case s.LeafNodeType != types.NodeTypeIt:
		case s.State == types.SpecStatePassed:
			r.passed++
		case s.State == types.SpecStateSkipped && s.Failure.Message != "":
			r.skipped[reason(s.Failure.Message)]++
		case s.State == types.SpecStateSkipped:
			r.silent(suite.SuiteConfig.FocusStrings, s.FullText(), skips)
		case s.State.Is(types.SpecStateFailureStates):
			r.failed = append(r.failed, s.FullText()+": "+reason(s.Failure.Message))
		}
	}
}

func (r *outcome) silent(focus []string, spec string, skips []skip) {
	if len(focus) > 0 && !regexp.MustCompile(strings.Join(focus, "|")).MatchString(spec) {
		return
	}
	if because := why(skips, spec); because != "" {
		r.skipped[because]++
		return
	}
	r.missed = append(r.missed, spec)
}

func (r *outcome) print(out io.Writer) {
	for _, s := range slices.Sorted(slices.Values(r.failed)) {
		fmt.Fprintln(out, "FAILED ", s)
	}
	for _, s := range slices.Sorted(slices.Values(r.missed)) {
		fmt.Fprintln(out, "NOT RUN", s)
	}
	total := 0
	for _, n := range r.skipped {
		total += n
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, len(r.failed)+len(r.missed), total)
	for _, because := range slices.SortedFunc(maps.Keys(r.skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.skipped[b], r.skipped[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(out, "%6d  %s\n", r.skipped[because], because)
	}
}

// reason is the first line of a message.
func reason(message string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	return line
}

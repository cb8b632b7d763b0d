package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// report prints what is in a JSON report of ginkgo.
func report(out io.Writer, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the suite's report: %w", err)
	}
	var suites []types.Report
	if err := json.Unmarshal(raw, &suites); err != nil {
		return fmt.Errorf("read the suite's report %s: %w", path, err)
	}
	for _, s := range suites {
		tell(out, s.SpecReports)
	}
	return nil
}

// tell says how many specs passed and failed, and why others were skipped.
// What the command line left out is no part of it.
func tell(out io.Writer, specs []types.SpecReport) {
	passed, failed, skipped := 0, 0, map[string]int{}
	for _, s := range specs {
		switch {
		case s.LeafNodeType != types.NodeTypeIt || (s.State == types.SpecStateSkipped && s.Failure.Message == ""):
		case s.State == types.SpecStatePassed:
			passed++
		case s.State == types.SpecStateSkipped:
			skipped[reason(s.Failure.Message)]++
		case s.State.Is(types.SpecStateFailureStates):
			failed++
			fmt.Fprintf(out, "FAILED  %s: %s\n", s.FullText(), reason(s.Failure.Message))
		}
	}
	total := 0
	for _, n := range skipped {
		total += n
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, total)
	for _, why := range slices.SortedFunc(maps.Keys(skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(skipped[b], skipped[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(out, "%6d  %s\n", skipped[why], why)
	}
}

// reason is the first line of a message.
func reason(message string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	return line
}

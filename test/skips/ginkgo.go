package skips

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// Ginkgo says what is wrong with what a suite left out: a spec that skipped
// itself for a reason which is not allowed, or that no spec ran at all. A spec
// that the command line did not ask for says nothing when it is left out.
func Ginkgo(report types.Report, allowed []Reason) error {
	var skipped []Skip
	ran := 0
	for _, spec := range report.SpecReports {
		switch {
		case spec.LeafNodeType != types.NodeTypeIt:
		case spec.State == types.SpecStateSkipped && spec.Failure.Message != "":
			skipped = append(skipped, Skip{Test: spec.FullText(), Words: spec.Failure.Message})
		case spec.State == types.SpecStatePending:
			skipped = append(skipped, Skip{Test: spec.FullText(), Words: "it is marked as pending"})
		case spec.State != types.SpecStateSkipped:
			ran++
		}
	}
	if found := Unexpected(skipped, allowed); len(found) > 0 {
		return fmt.Errorf("skipped for reasons that test/skips does not allow:\n%s", list(found))
	}
	if ran == 0 {
		return fmt.Errorf("no spec ran; those skipped themselves:\n%s", list(skipped))
	}
	return nil
}

func list(all []Skip) string {
	var out strings.Builder
	for _, s := range all {
		fmt.Fprintf(&out, "  %s\n", s)
	}
	return out.String()
}

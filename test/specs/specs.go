// Package specs runs suites of Ginkgo within go test.
package specs

import (
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/moor-storage/moor/test/skips"
)

// Run runs the specs that are registered, once per process. It fails if one was left
// out for a reason that is not allowed. Each spec that failed is told as a test of its
// own below t, because what reads the output of go test knows tests, not specs.
func Run(t *testing.T, suite string, allowed []skips.Reason) {
	t.Helper()
	var report types.Report
	ginkgo.ReportAfterSuite("what was skipped", func(r ginkgo.Report) {
		report = r
		gomega.Expect(skips.Ginkgo(r, allowed)).To(gomega.Succeed())
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, suite)
	for _, f := range failures(report) {
		t.Run(f.name, func(t *testing.T) { t.Error(f.words) })
	}
}

// failure is a spec that failed, or a part of the suite around them, and why.
type failure struct{ name, words string }

func failures(report types.Report) []failure {
	var out []failure
	for _, spec := range report.SpecReports {
		if !spec.Failed() {
			continue
		}
		name := spec.FullText()
		if spec.LeafNodeType != types.NodeTypeIt {
			name = strings.TrimSpace(spec.LeafNodeType.String() + " " + name)
		}
		out = append(out, failure{name, spec.Failure.Location.String() + ": " + spec.Failure.Message})
	}
	return out
}

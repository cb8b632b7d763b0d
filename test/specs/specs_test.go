package specs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2/types"
)

// TestFailures: what did not pass is told by name, whatever way it failed.
func TestFailures(t *testing.T) {
	at := types.CodeLocation{FileName: "a_test.go", LineNumber: 7}
	spec := func(kind types.NodeType, name string, state types.SpecState) types.SpecReport {
		return types.SpecReport{
			ContainerHierarchyTexts: []string{"a volume"}, LeafNodeType: kind, LeafNodeText: name, State: state,
			Failure: types.Failure{Message: "words", Location: at},
		}
	}
	got := failures(types.Report{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStateFailed, Failure: types.Failure{Message: "no bed", Location: at}},
		spec(types.NodeTypeIt, "passes", types.SpecStatePassed),
		spec(types.NodeTypeIt, "fails", types.SpecStateFailed),
		spec(types.NodeTypeIt, "panics", types.SpecStatePanicked),
		spec(types.NodeTypeIt, "hangs", types.SpecStateTimedout),
		spec(types.NodeTypeIt, "is not asked for", types.SpecStateSkipped),
	}})
	want := []failure{
		{"BeforeSuite", "a_test.go:7: no bed"},
		{"a volume fails", "a_test.go:7: words"},
		{"a volume panics", "a_test.go:7: words"},
		{"a volume hangs", "a_test.go:7: words"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(failure{})); d != "" {
		t.Error(d)
	}
}

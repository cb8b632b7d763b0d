package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func spec(state types.SpecState, text, message string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, State: state, LeafNodeText: text, Failure: types.Failure{Message: message}}
}

// printed is what report says of a run of the suite with the focus "storage".
func printed(t *testing.T, specs ...types.SpecReport) (string, error) {
	t.Helper()
	raw, err := json.Marshal([]types.Report{{SpecReports: specs, SuiteConfig: types.SuiteConfig{FocusStrings: []string{"storage"}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = report(&out, file, []skip{{specs: "ntfs", because: "no Windows"}})
	return out.String(), err
}

func TestReport(t *testing.T) {
	got, err := printed(
		t, types.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
		spec(types.SpecStatePassed, "storage a", ""), spec(types.SpecStatePassed, "storage b", ""),
		spec(types.SpecStateFailed, "storage c", "wrong\nin detail"), spec(types.SpecStateTimedout, "storage d", "late"),
		spec(types.SpecStateSkipped, "network", ""), spec(types.SpecStateSkipped, "network ntfs", ""),
		spec(types.SpecStateSkipped, "storage e", "no clones"), spec(types.SpecStateSkipped, "storage f", "no snapshots"),
		spec(types.SpecStateSkipped, "storage g", "no snapshots"), spec(types.SpecStateSkipped, "storage ntfs", ""),
		spec(types.SpecStateSkipped, "storage h", ""),
	)
	want := strings.Join([]string{
		"FAILED  storage c: wrong", "FAILED  storage d: late", "NOT RUN storage h", "2 passed, 3 failed, 4 skipped",
		"     2  no snapshots", "     1  no Windows", "     1  no clones", "",
	}, "\n")
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	if err == nil {
		t.Error("specs failed, and there is no error")
	}
}

func TestReportWithoutFailure(t *testing.T) {
	for name, c := range map[string]struct {
		spec types.SpecReport
		ok   bool
	}{
		"passed":       {spec(types.SpecStatePassed, "storage", ""), true},
		"nothing ran":  {spec(types.SpecStateSkipped, "storage", "no snapshots"), false},
		"ended before": {spec(types.SpecStateSkipped, "storage", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := printed(t, c.spec); (err == nil) != c.ok {
				t.Errorf("error %v after\n%s", err, got)
			}
		})
	}
}

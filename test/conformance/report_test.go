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

func TestReport(t *testing.T) {
	spec := func(state types.SpecState, text, message string) types.SpecReport {
		return types.SpecReport{LeafNodeType: types.NodeTypeIt, State: state, LeafNodeText: text, Failure: types.Failure{Message: message}}
	}
	raw, err := json.Marshal([]types.Report{{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
		spec(types.SpecStatePassed, "a", ""), spec(types.SpecStatePassed, "b", ""),
		spec(types.SpecStateFailed, "c", "wrong\nin detail"), spec(types.SpecStateTimedout, "d", "late"),
		spec(types.SpecStateSkipped, "left out", ""),
		spec(types.SpecStateSkipped, "e", "no clones"), spec(types.SpecStateSkipped, "f", "no snapshots"), spec(types.SpecStateSkipped, "g", "no snapshots"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, file); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"FAILED  c: wrong", "FAILED  d: late", "2 passed, 2 failed, 3 skipped", "     2  no snapshots", "     1  no clones", "",
	}, "\n")
	if out.String() != want {
		t.Fatalf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

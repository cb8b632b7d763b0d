package skips

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2/types"
)

// of a run of go test -json -v, without times.
const record = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestDevice"}
{"Action":"output","Package":"p","Test":"TestDevice","Output":"=== RUN   TestDevice\n"}
{"Action":"run","Package":"p","Test":"TestDevice/btrfs"}
{"Action":"output","Package":"p","Test":"TestDevice/btrfs","Output":"=== RUN   TestDevice/btrfs\n"}
{"Action":"output","Package":"p","Test":"TestDevice/btrfs","Output":"    format_root_test.go:49: mkfs.btrfs is not installed\n"}
{"Action":"output","Package":"p","Test":"TestDevice/btrfs","Output":"--- SKIP: TestDevice/btrfs (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestDevice/btrfs","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestDevice","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestBeAHost"}
{"Action":"skip","Package":"p","Test":"TestBeAHost","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":0.01}
{"Action":"skip","Package":"without tests","Elapsed":0}
`

func TestRead(t *testing.T) {
	got, ran, err := Read(strings.NewReader(record))
	want := []Skip{{"TestDevice/btrfs", "mkfs.btrfs is not installed"}, {"TestBeAHost", ""}}
	if diff := cmp.Diff(want, got); diff != "" || ran != 1 || err != nil {
		t.Errorf("%d ran, %v, skipped: %s", ran, err, diff)
	}
	if _, _, err := Read(strings.NewReader("FAIL p [build failed]\n")); err == nil {
		t.Error("what is no JSON is taken for a record without skips")
	}
}

func TestUnexpected(t *testing.T) {
	all := []Skip{{"TestDevice/btrfs", "mkfs.btrfs is not installed"}, {"TestBeAHost", ""}, {"TestBeAHostToo", ""}}
	if diff := cmp.Diff([]Skip{all[0], all[2]}, Unexpected(all, GoTests)); diff != "" {
		t.Error(diff)
	}
}

func TestGinkgo(t *testing.T) {
	allowed := []Reason{{anything, regexp.MustCompile("^another bed"), "it runs there"}}
	spec := func(state types.SpecState, words string) types.SpecReport {
		return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: "a spec", State: state, Failure: types.Failure{Message: words}}
	}
	passed, notAskedFor := spec(types.SpecStatePassed, ""), spec(types.SpecStateSkipped, "")
	for name, tt := range map[string]struct {
		specs []types.SpecReport
		want  string
	}{
		"all ran":             {[]types.SpecReport{passed, notAskedFor, spec(types.SpecStateSkipped, "another bed has it")}, ""},
		"unexpected":          {[]types.SpecReport{passed, spec(types.SpecStateSkipped, "no tool")}, "a spec: no tool"},
		"pending":             {[]types.SpecReport{passed, spec(types.SpecStatePending, "")}, "pending"},
		"none asked for":      {[]types.SpecReport{notAskedFor}, "no spec ran"},
		"all skip themselves": {[]types.SpecReport{notAskedFor, spec(types.SpecStateSkipped, "another bed has it")}, "no spec ran"},
		"failed":              {[]types.SpecReport{spec(types.SpecStateFailed, "wrong")}, ""},
		"only a node of the suite": {
			[]types.SpecReport{{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed}}, "no spec ran",
		},
	} {
		err := Ginkgo(types.Report{SpecReports: tt.specs}, allowed)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# Page\n\n## One\n\n```sh\n# DPU cluster\nfirst\nstill first\n# host cluster\nsecond\n```\n\n1. a list:\n   ```sh\n   # host cluster\n   cat <<EOF\n   a:\n     b: c\n   EOF\n   ```\n\n```yaml\nnot: a command\n```\n\n### Below\n\n```sh\n# each cluster\nfourth\n```\n\n## Two\n\n```sh\nno cluster\n```\n\n## Three\n"

func TestSteps(t *testing.T) {
	want := []Step{
		{"dpu", "first\nstill first\n"},
		{"host", "second\n"},
		{"host", "cat <<EOF\na:\n  b: c\nEOF\n"},
		{"host", "fourth\n"},
		{"dpu", "fourth\n"},
		{"dpu2", "fourth\n"},
	}
	got, err := Steps(page, "## One", "")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for heading, words := range map[string]string{"## Two": "no cluster", "## Three": "no commands", "## Four": "no heading"} {
		if got, err := Steps(page, heading, ""); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, %v; want %q", heading, got, err, words)
		}
	}
	got, err = Steps(page, "## Two", "host")
	if diff := cmp.Diff([]Step{{"host", "no cluster\n"}}, got); diff != "" || err != nil {
		t.Errorf("a page about one cluster: %v %s", err, diff)
	}
}

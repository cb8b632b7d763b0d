package runbook

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsOfAPage(t *testing.T) {
	const page = "# Page\n\nSet:\n\n```sh\nA=1\n```\n\n## One\n\n1. Do nothing.\n2. Do:\n\n   ```sh\n   if true; then\n     echo 1. x\n   fi\n   ```\n\n   and then\n\n   ```sh\n   echo y\n   ```\n\n## Two\n\n1. Do:\n\n   ```sh\n   echo z\n   ```\n"
	got := commands(page)
	want := Commands{"": {"A=1\n"}, "One/2": {"if true; then\n  echo 1. x\nfi\n", "echo y\n"}, "Two/1": {"echo z\n"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if script, err := got.Step("One", 2); err != nil || script != "if true; then\n  echo 1. x\nfi\necho y\n" {
		t.Errorf("step 2: %q, %v", script, err)
	}
	for _, missing := range []int{1, 3} {
		if script, err := got.Step("One", missing); err == nil {
			t.Errorf("step %d: %q", missing, script)
		}
	}
}

// TestPagesAreShell: what people are told to run is at least a script.
func TestPagesAreShell(t *testing.T) {
	page, err := Read(filepath.Join("..", "..", "docs", "restore.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(page) < 10 {
		t.Fatalf("only %d steps have commands", len(page))
	}
	for step, blocks := range page {
		cmd := exec.Command("bash", "-n")
		cmd.Stdin = strings.NewReader(strings.Join(blocks, ""))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", step, err, out)
		}
	}
}

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moor-storage/moor/test/devcluster"
)

// TestEveryMutationApplies keeps the mutations in step with the code: each
// changes what it names, into Go.
func TestEveryMutationApplies(t *testing.T) {
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range all() {
		if _, err := m.overlay(root, t.TempDir()); err != nil {
			t.Error(err)
		}
		if seen[m.name] || m.tests == "" || (m.focus == "") != (m.words == "") || (m.focus == "") != (m.program == "") {
			t.Errorf("mutation %q: its name is taken, it names no test, or only half of one on the bed", m.name)
		}
		if strings.Contains(m.words, "[FAILED]") {
			t.Errorf("mutation %q: any failure of %q counts: name the words of the one that is meant", m.name, m.focus)
		}
		seen[m.name] = true
	}
}

// TestChoosesSomething: a name that is misspelled is no success, nor is one that is not for the bed. Nothing is run.
func TestChoosesSomething(t *testing.T) {
	made := []mutation{{name: "in the unit tests"}, {name: "on the bed too", focus: "a spec"}}
	for _, tc := range []struct {
		o    options
		want int
	}{
		{options{}, 2},
		{options{only: "unit"}, 1},
		{options{bed: true}, 1},
		{options{bed: true, only: "unit"}, 0},
		{options{only: "no such mutation"}, 0},
		{options{bed: true, only: "no such mutation"}, 0},
		{options{only: "("}, 0},
		{options{bed: true, generate: "pkg/writer"}, 0},
		{options{shard: "1/1"}, 2},
		{options{shard: "2/2"}, 1},
		{options{shard: "1/3"}, 0},
		{options{shard: "0/2"}, 0},
		{options{shard: "3/2"}, 0},
		{options{shard: "1/2x"}, 0},
		{options{shard: "half"}, 0},
	} {
		got, err := tc.o.choose(made)
		if len(got) != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%+v: chosen %v, %v", tc.o, got, err)
		}
	}
}

// TestShards: each mutation is in one part, whatever their number.
func TestShards(t *testing.T) {
	made := all()
	for n := 1; n < 8; n++ {
		var got []string
		for i := 1; i <= n; i++ {
			part, err := options{shard: fmt.Sprintf("%d/%d", i, n)}.choose(made)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range part {
				got = append(got, m.name)
			}
		}
		if !slices.EqualFunc(made, got, func(m mutation, name string) bool { return m.name == name }) {
			t.Errorf("%d parts have %d mutations, want %d in their order", n, len(got), len(made))
		}
	}
}

// TestControl: a package whose tests fail by themselves catches nothing.
func TestControl(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module example.com/m\n",
		"well/well_test.go":   "package well\n\nimport \"testing\"\n\nfunc TestWell(*testing.T) {}\n",
		"flaky/flaky_test.go": "package flaky\n\nimport \"testing\"\n\nfunc TestFlaky(t *testing.T) { t.Fatal(\"by itself\") }\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	well, flaky := mutation{name: "a", tests: "./well"}, mutation{name: "b", tests: "./well ./flaky"}
	if err := controlTests(t.Context(), root, []mutation{well, well}); err != nil {
		t.Error(err)
	}
	if err := controlTests(t.Context(), root, []mutation{well, flaky}); err == nil || !strings.Contains(err.Error(), "by itself") {
		t.Errorf("tests that fail by themselves: %v", err)
	}
}

// TestPasses: a run of end-to-end tests in which none ran has not passed.
func TestPasses(t *testing.T) {
	for out, want := range map[string]bool{
		"Ran 1 of 60 Specs in 3 seconds\nPASS": true, "Ran 12 of 60 Specs": true,
		"Ran 0 of 60 Specs in 0 seconds\nPASS": false, "": false, "Ran 1 of 60 Specs\nexit 1": false,
	} {
		script := "echo '" + strings.ReplaceAll(out, "\nexit 1", "'; exit 1; '") + "'"
		if err := passes(exec.Command("sh", "-c", script)); (err == nil) != want {
			t.Errorf("%q: %v", out, err)
		}
	}
}

// TestBedMutationsNameWhatThereIs: the end-to-end test exists, and something says
// the words with which it has to fail.
func TestBedMutationsNameWhatThereIs(t *testing.T) {
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, dir := range []string{"e2e", "proof"} {
		files, err := filepath.Glob(filepath.Join(root, "test", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
	}
	for _, m := range all() {
		if !strings.Contains(text, m.focus) || !strings.Contains(text, m.words) {
			t.Errorf("mutation %q: nothing in test/e2e or test/proof has %q or says %q", m.name, m.focus, m.words)
		}
	}
}

package main

import (
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
	for _, m := range mutations {
		if _, err := m.overlay(root, t.TempDir()); err != nil {
			t.Error(err)
		}
		if seen[m.name] || m.tests == "" || (m.focus == "") != (m.words == "") || (m.focus == "") != (m.program == "") {
			t.Errorf("mutation %q: its name is taken, it names no test, or only half of one on the bed", m.name)
		}
		seen[m.name] = true
	}
}

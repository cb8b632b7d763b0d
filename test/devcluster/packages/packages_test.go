package packages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstall: the script of the checkout is given the lists that are named, and what it says is shown.
func TestInstall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script string
		lists  []string
		want   string
		fails  bool
	}{
		{name: "the usual list", script: "echo lists: $*", want: "lists:\n"},
		{name: "others", script: "echo lists: $*", lists: []string{"a.txt", "b.txt"}, want: "lists: %[1]s/a.txt %[1]s/b.txt\n"},
		{name: "it fails", script: "echo no network >&2; exit 1", want: "no network\n", fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			apt := filepath.Join(root, "hack", "apt")
			err := errors.Join(os.MkdirAll(apt, 0o755), os.WriteFile(filepath.Join(apt, "install.sh"), []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755)) //nolint:gosec // a program
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			if err := Install(t.Context(), root, &said, tt.lists...); (err != nil) != tt.fails {
				t.Errorf("error %v", err)
			}
			want := tt.want
			if len(tt.lists) > 0 {
				want = fmt.Sprintf(want, apt)
			}
			if said.String() != want {
				t.Errorf("it says %q, want %q", said.String(), want)
			}
		})
	}
}

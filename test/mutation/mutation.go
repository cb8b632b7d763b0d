package main

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// edit replaces one piece of a file.
type edit struct{ file, old, new string }

// mutation switches one safety check of the product off.
type mutation struct {
	// name says what no longer holds.
	name string
	// edits of the source, relative to the root.
	edits []edit
	// at, if not 0, is where in its file the only edit replaces what may stand there
	// several times. Mutants that are generated have it.
	at int
	// tests are the packages that have to catch it.
	tests string
	// focus, if not empty, is an end-to-end test that has to catch it on the
	// bed too, where program is the mutated one, and words what it has to say.
	focus, program, words string
}

// all are the mutations.
func all() []mutation {
	return slices.Concat(mutations, evidence, identity, marks, living, requests, format, secondLine, services, medium, surrenders, deadMounts, lostPaths, powers, doubts, functions, revocations, recoveries, drains, hostAccesses, heartbeats, takenOut, several, adopted)
}

// overlay writes the mutated files into dir, and what tells the go command to
// take them in place of the real ones. It returns the path of the latter.
func (m mutation) overlay(root, dir string) (string, error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("mutation %q: %w", m.name, err)
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], e.old); m.at == 0 && n != 1 {
			return "", fmt.Errorf("mutation %q: %s holds what is to be replaced %d times: write it anew in test/mutation\n%s", m.name, e.file, n, e.old)
		}
		if len(texts[path]) < m.at || !strings.Contains(texts[path][m.at:], e.old) {
			return "", fmt.Errorf("mutation %q: %s has changed since it was read", m.name, e.file)
		}
		texts[path] = texts[path][:m.at] + strings.Replace(texts[path][m.at:], e.old, e.new, 1)
	}
	replace, i := map[string]string{}, 0
	for path, text := range texts {
		if _, err := parser.ParseFile(token.NewFileSet(), path, text, 0); err != nil {
			return "", fmt.Errorf("mutation %q: %w", m.name, err)
		}
		mutated := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("mutation %q: %w", m.name, err)
		}
		replace[path] = mutated
		i++
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("mutation %q: %w", m.name, err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("mutation %q: %w", m.name, err)
	}
	return path, nil
}

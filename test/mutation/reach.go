package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// reach is which tests of a package reach which of its code: only these can catch a mutant.
type reach struct {
	root, pkg string
	names     []string
	took      map[string]time.Duration
	blocks    map[string]*block
}

// block is a piece of code that runs as one, and by which tests.
type block struct {
	file                             string
	fromLine, fromCol, toLine, toCol int
	by                               map[string]bool
}

var testName = regexp.MustCompile(`(?m)^(Test\w*|Fuzz\w*|Example\w*)$`)

// reachOf runs each test of a package alone, with nothing switched off. All have to pass.
func reachOf(ctx context.Context, root, dir, pkg string) (*reach, error) {
	r := &reach{root: root, pkg: pkg, took: map[string]time.Duration{}, blocks: map[string]*block{}}
	binary, profile, in := filepath.Join(dir, "cover.test"), filepath.Join(dir, "profile"), filepath.Join(root, pkg)
	if err := say(command(ctx, root, "go", "test", "-c", "-vet=off", "-cover", "-ldflags=-s -w", "-o="+binary, "./"+pkg)); err != nil {
		return nil, err
	}
	list, err := command(ctx, in, binary, "-test.list=.").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", pkg, err, list)
	}
	for _, name := range testName.FindAllString(string(list), -1) {
		start := time.Now()
		if err := say(command(ctx, in, binary, "-test.run=^"+name+"$", "-test.timeout="+mayTake.String(), "-test.coverprofile="+profile)); err != nil {
			return nil, fmt.Errorf("nothing is switched off, and yet: %w", err)
		}
		r.names, r.took[name] = append(r.names, name), time.Since(start)
		text, err := os.ReadFile(profile)
		if err != nil {
			return nil, fmt.Errorf("read what %s reaches: %w", name, err)
		}
		r.note(name, string(text))
	}
	return r, nil
}

// note takes down what a test has reached, as its profile says.
func (r *reach) note(test, profile string) {
	for line := range strings.Lines(profile) {
		place, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		at := strings.LastIndex(place, ":")
		if at < 0 || !strings.Contains(place, ".go:") {
			continue // the first line
		}
		if r.blocks[place] == nil {
			b := &block{file: path.Join(r.pkg, path.Base(place[:at])), by: map[string]bool{}}
			if _, err := fmt.Sscanf(place[at+1:], "%d.%d,%d.%d", &b.fromLine, &b.fromCol, &b.toLine, &b.toCol); err != nil {
				continue
			}
			r.blocks[place] = b
		}
		if !strings.HasSuffix(count, " 0") {
			r.blocks[place].by[test] = true
		}
	}
}

// tests are those that reach a mutant, and how long they took. What stands in no block, such
// as the condition of a case, may be reached by each that reaches its file.
func (r *reach) tests(m mutation) (names []string, took time.Duration, err error) {
	inner, err := r.inner(m)
	if err != nil {
		return nil, 0, err
	}
	of := map[string]bool{}
	for _, b := range r.blocks {
		if b == inner || inner == nil && b.file == m.edits[0].file {
			maps.Copy(of, b.by)
		}
	}
	for _, name := range r.names {
		if of[name] {
			names, took = append(names, name), took+r.took[name]
		}
	}
	return names, took, nil
}

// inner is the innermost block in which a mutant is; nil if there is none.
func (r *reach) inner(m mutation) (*block, error) {
	file := m.edits[0].file
	text, err := os.ReadFile(filepath.Join(r.root, file))
	if err != nil {
		return nil, fmt.Errorf("mutation %q: %w", m.name, err)
	}
	upTo := string(text[:m.at])
	line, col := strings.Count(upTo, "\n")+1, m.at-strings.LastIndex(upTo, "\n")
	var inner *block
	for _, b := range r.blocks {
		if b.file == file && !before(line, col, b.fromLine, b.fromCol) && before(line, col, b.toLine, b.toCol) &&
			(inner == nil || before(inner.fromLine, inner.fromCol, b.fromLine, b.fromCol)) {
			inner = b
		}
	}
	return inner, nil
}

func before(line, col, otherLine, otherCol int) bool {
	return line < otherLine || line == otherLine && col < otherCol
}

// Package skips holds the few reasons for which a test may be skipped. A skip for
// any other reason fails the run: a test that silently stops running is found
// only when the bug that it was written for is back.
package skips

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Skip is a test that was skipped, and what it said.
type Skip struct{ Test, Words string }

// String is one line.
func (s Skip) String() string { return s.Test + ": " + s.Words }

// Reason allows tests to be skipped.
type Reason struct {
	// Test matches the names of the tests, Words what they say.
	Test, Words *regexp.Regexp
	// Because is why that loses nothing.
	Because string
}

var anything = regexp.MustCompile("")

// GoTests are the reasons of Moor's tests, but for those on the test bed.
var GoTests = []Reason{
	{regexp.MustCompile(`^TestBeAHost$`), anything, "it is no test: another test starts it as the program of a host"},
	{anything, regexp.MustCompile(`^the platform does not offer that$`), "a part of the contract that is optional; other platforms run it"},
	{regexp.MustCompile(`Filesystem/size$`), regexp.MustCompile(`^an fsdev has no size of its own$`), "block devices run it"},
}

// EndToEnd are the reasons of test/e2e. Each bed has one mode of attaching, and
// storage that is at places or everywhere, and knows epochs or not, and one DPU cluster or two; make e2e runs a bed of each kind.
var EndToEnd = []Reason{
	{anything, regexp.MustCompile(`^the bed attaches by the controller`), "make e2e runs it on a bed with --attach-mode=node"},
	{anything, regexp.MustCompile(`^this bed has no pods as volumes`), "make test and make e2e run it on a bed with --pods"},
	{anything, regexp.MustCompile(`^the DPUs of this bed run no pods`), "make e2e runs it on a bed with --dpu-pods"},
	{anything, regexp.MustCompile(`^this bed has no local driver`), "make e2e runs it on a bed with --local-driver"},
	{anything, regexp.MustCompile(`^the storage of this bed is reached from everywhere`), "make e2e runs it on a bed with --topology"},
	{anything, regexp.MustCompile(`^this bed has one DPU cluster`), "make e2e runs it on a bed with --two-dpu-clusters"},
	{anything, regexp.MustCompile(`^the storage of this bed knows no epochs`), "make e2e runs it on a bed with --epochs"},
}

// Sanity are the reasons of csi-sanity on the test bed.
var Sanity = []Reason{
	{regexp.MustCompile("pagination should detect volumes added between pages"), anything, "csi-test itself never runs it, and test/sanity has its own"},
	{anything, regexp.MustCompile("^SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported"), "make e2e runs it on a bed with --topology"},
}

// Unexpected are the skips that no reason allows, in order.
func Unexpected(all []Skip, allowed []Reason) []Skip {
	return slices.DeleteFunc(slices.Clone(all), func(s Skip) bool {
		return slices.ContainsFunc(allowed, func(r Reason) bool { return r.Test.MatchString(s.Test) && r.Words.MatchString(s.Words) })
	})
}

// event is what `go test -json` says of a test (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// Read finds the skipped tests in what `go test -json` has written, and how many
// tests have passed or failed.
func Read(r io.Reader) (skipped []Skip, ran int, err error) {
	said := map[string]*strings.Builder{}
	lines := bufio.NewReader(r)
	for {
		line, readErr := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, 0, fmt.Errorf("read what go test -json wrote, %q: %w", line, err)
			}
			name := e.Package + " " + e.Test
			switch {
			case e.Test == "":
			case e.Action == "run":
				said[name] = &strings.Builder{}
			case e.Action == "output" && said[name] != nil:
				said[name].WriteString(e.Output)
			case e.Action == "pass" || e.Action == "fail":
				ran++
				delete(said, name)
			case e.Action == "skip":
				skipped = append(skipped, Skip{Test: e.Test, Words: words(said[name])})
			}
		}
		if readErr == io.EOF {
			return skipped, ran, nil
		}
		if readErr != nil {
			return nil, 0, fmt.Errorf("read what go test -json wrote: %w", readErr)
		}
	}
}

// place is the file and line that testing puts before what a test says.
var place = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// words is what a test says, without what testing itself writes about it.
func words(said *strings.Builder) string {
	if said == nil {
		return ""
	}
	var out []string
	for line := range strings.Lines(said.String()) {
		line = strings.TrimRight(line, "\n")
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "=== ") || strings.HasPrefix(trimmed, "--- ") {
			continue
		}
		out = append(out, strings.TrimSpace(place.ReplaceAllString(line, "")))
	}
	return strings.Join(out, "; ")
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The marks in docs/benchmarks.md between which the last results stand.
const (
	renderBegin = "<!-- begin results -->"
	renderEnd   = "<!-- end results -->"
)

// render writes the results of the files into the page, in the place of those
// that stood there. What a later file holds replaces what an earlier one does.
func render(page string, files []string) error {
	results, err := latest(files)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("write the results into a page: %w", err)
	}
	head, rest, found := bytes.Cut(text, []byte(renderBegin))
	_, tail, ended := bytes.Cut(rest, []byte(renderEnd))
	if !found || !ended {
		return fmt.Errorf("write the results into %s: it lacks %q or %q", page, renderBegin, renderEnd)
	}
	body := markdown(files, results)
	out := bytes.Join([][]byte{head, []byte(renderBegin + "\n" + body), append([]byte(renderEnd), tail...)}, nil)
	if err := os.WriteFile(page, out, 0o644); err != nil {
		return fmt.Errorf("write the results into a page: %w", err)
	}
	return nil
}

// latest returns what the files hold, each result by its last file.
func latest(files []string) ([]Result, error) {
	var all []Result
	for _, file := range files {
		of, err := load(file)
		if err != nil {
			return nil, err
		}
		all = merge(all, of)
	}
	return all, nil
}

// markdown is the table of results, under what they were measured on.
func markdown(files []string, results []Result) string {
	var out strings.Builder
	var names, places []string
	for _, file := range files {
		names = append(names, "`bench/results/"+filepath.Base(file)+"`")
	}
	for _, r := range results {
		// How busy the machine was stands in the file.
		place, _, _ := strings.Cut(r.Machine, ", load")
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	fmt.Fprintf(&out, "%s: %s.\n\n", strings.Join(names, ", "), strings.Join(places, "; "))
	out.WriteString("| Name | Runs | p50 | p99 | Value | Target | Commit |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		goal := targetOf(r.Name).String()
		if words := verdict(r); words != "" {
			goal = strings.TrimPrefix(goal+": "+strings.Replace(words, "MISSED", "**missed**", 1), ": ")
		}
		fmt.Fprintf(&out, "| `%s` | %d | %s | %s | %s %s | %s | %.7s |\n", r.Name, r.Runs, number(r.P50), number(r.P99), number(r.Value), r.Unit, goal, r.Commit)
	}
	return out.String()
}

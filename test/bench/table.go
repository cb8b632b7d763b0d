package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// target is the most that the value of a result may be, on two cores.
type target struct {
	// name of the result; with a dot at the end, of all that begin so.
	name string
	most float64
}

// targets of Moor, in the units of the results.
var targets = []target{
	{"attach.single", 600},
	{"attach.parallel50.all", 10_000},
	{"pod.new_volume", 9_000},
	{"rss.", 80},
}

// targetOf finds the target of a result; ok is false if it has none.
func targetOf(name string) (most float64, ok bool) {
	for _, t := range targets {
		if name == t.name || strings.HasSuffix(t.name, ".") && strings.HasPrefix(name, t.name) {
			return t.most, true
		}
	}
	return 0, false
}

// verdict is ok or MISSED, or empty without a target.
func verdict(r Result) string {
	most, ok := targetOf(r.Name)
	switch {
	case !ok:
		return ""
	case r.Value <= most:
		return "ok"
	}
	return "MISSED"
}

// printResults prints the table of results beside their targets.
func printResults(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\truns\tp50\tp99\tvalue\tunit\ttarget\t")
	for _, r := range results {
		goal := ""
		if most, ok := targetOf(r.Name); ok {
			goal = "<= " + number(most)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Name, r.Runs, number(r.P50), number(r.P99), number(r.Value), r.Unit, goal, verdict(r))
	}
	return w.Flush()
}

// printWrites prints who wrote what, per attach and detach.
func printWrites(out io.Writer, rows []writeRow, runs int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cluster\twho\tverb\tresource\tper attach+detach\trefused\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.cluster, r.who, r.verb, r.resource,
			number(round(float64(r.count)/float64(runs))), number(round(float64(r.refused)/float64(runs))))
	}
	return w.Flush()
}

// number prints as few digits as say it.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

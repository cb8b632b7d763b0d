package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/test/bench/results"
)

// What the extender is measured by: Go benchmarks, and the test with the real
// kube-scheduler.
const (
	extenderPackage  = "./pkg/scheduler/extender"
	schedulerPackage = "./cmd/scheduler-extender"
	// assets is the variable that says where kube-apiserver, etcd and
	// kube-scheduler are.
	assets = "KUBEBUILDER_ASSETS"
)

// goTest runs go test in the checkout and returns what it printed.
func (b *bench) goTest(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	cmd.Dir = b.root
	cmd.Env = os.Environ()
	if os.Getenv(assets) == "" && b.bed != nil {
		cmd.Env = append(cmd.Env, assets+"="+b.bed.KubeBinDir())
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run go test %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// prioritize measures the extender's scoring in process. A sample is the mean
// of one run of the Go benchmark.
func (b *bench) prioritize(ctx context.Context) error {
	out, err := b.goTest(ctx, "-run=^$", "-bench=^BenchmarkInProcess$/^extender.prioritize", "-benchtime=200ms",
		"-count="+strconv.Itoa(b.options.times(5)), extenderPackage)
	if err != nil {
		return err
	}
	measured, err := parseGoBench(out)
	if err != nil {
		return err
	}
	for _, name := range slices.SortedFunc(maps.Keys(measured), byNumbers) {
		m := measured[name]
		took := b.series(name, results.Micros, results.Median)
		for _, ns := range m["ns/op"] {
			took.add(ns / 1000)
		}
		b.series(strings.Replace(name, "prioritize", "allocations", 1), results.Allocations, results.Worst).add(m["allocs/op"]...)
	}
	return nil
}

// questions is how many pods a sample of extender.http.5000 is of.
const questions = 2000

// overHTTP measures both verbs over HTTP with the names of 5,000 nodes, for
// pods with one and with eight claims. A sample is the 99th percentile of one run
// of the Go benchmark, or its rate; the worst counts.
func (b *bench) overHTTP(ctx context.Context) error {
	out, err := b.goTest(ctx, "-run=^$", "-bench=^BenchmarkHTTP$/claim", "-benchtime="+strconv.Itoa(questions)+"x",
		"-count="+strconv.Itoa(b.options.times(3)), extenderPackage)
	if err != nil {
		return err
	}
	measured, err := parseGoBench(out)
	if err != nil {
		return err
	}
	call := b.series("extender.http.5000", results.Millis, results.Worst)
	rate := b.series("extender.http.5000.rate", results.Rate, results.Least)
	for _, m := range measured {
		if len(m["p99-ms"]) == 0 || len(m["pods/s"]) == 0 {
			return fmt.Errorf("read the benchmark of the extender: it tells no p99 or no rate: %s", out)
		}
		call.add(m["p99-ms"]...)
		rate.add(m["pods/s"]...)
	}
	return nil
}

var chosen = regexp.MustCompile(`(\d+) of (\d+) pods are on a node with a replica`)

// replicaNode has the real kube-scheduler place pods, and counts those that
// come to a node with a replica of their volume.
func (b *bench) replicaNode(ctx context.Context) error {
	out, err := b.goTest(ctx, "-count=1", "-v", "-tags=api", "-run=^TestExtender$/^real_scheduler$", schedulerPackage)
	if err != nil {
		return err
	}
	m := chosen.FindStringSubmatch(out)
	if m == nil {
		return fmt.Errorf("count the pods on nodes with a replica: the test did not say; %s must hold kube-apiserver, etcd and kube-scheduler", assets)
	}
	hits, err := strconv.ParseFloat(m[1], 64)
	pods, podsErr := strconv.ParseFloat(m[2], 64)
	if err := errors.Join(err, podsErr); err != nil {
		return fmt.Errorf("count the pods on nodes with a replica: %w", err)
	}
	b.series("extender.replica_node_chosen", results.Share, results.Least).add(100 * hits / pods)
	return nil
}

// goBenchLine is a result of a Go benchmark: name without the number of
// processors, how often it ran, pairs of value and unit.
var goBenchLine = regexp.MustCompile(`^Benchmark\w+/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// parseGoBench reads what go test -bench printed: by name and unit, one sample
// for each run.
func parseGoBench(text string) (map[string]map[string][]float64, error) {
	out := map[string]map[string][]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		m := goBenchLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		words := strings.Fields(m[2])
		if len(words)%2 != 0 {
			return nil, fmt.Errorf("read the line of a benchmark, %q: want pairs of value and unit", lines.Text())
		}
		if out[m[1]] == nil {
			out[m[1]] = map[string][]float64{}
		}
		for i := 0; i < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("read the line of a benchmark, %q: %w", lines.Text(), err)
			}
			out[m[1]][words[i+1]] = append(out[m[1]][words[i+1]], value)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read the results of benchmarks: there are none in %q", text)
	}
	return out, nil
}

// byNumbers orders names so that their parts that are numbers count as such.
func byNumbers(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		x, errX := strconv.Atoi(a)
		y, errY := strconv.Atoi(b)
		if errX == nil && errY == nil {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(a, b)
	})
}

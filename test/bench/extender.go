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
		micros := make([]float64, len(m["ns/op"]))
		for i, ns := range m["ns/op"] {
			micros[i] = ns / 1000
		}
		b.add(median(name, unitMicros, micros),
			worst(strings.Replace(name, "prioritize", "allocations", 1), unitAllocs, m["allocs/op"]))
	}
	return nil
}

// overHTTP measures both verbs over HTTP with the names of 5,000 nodes, for
// pods with one and with eight claims; what is held against the targets is the
// worse of the two.
func (b *bench) overHTTP(ctx context.Context) error {
	out, err := b.goTest(ctx, "-run=^$", "-bench=^BenchmarkHTTP$/claim", "-benchtime="+strconv.Itoa(b.options.times(2000))+"x", extenderPackage)
	if err != nil {
		return err
	}
	measured, err := parseGoBench(out)
	if err != nil {
		return err
	}
	call := Result{Name: "extender.http.5000", Unit: unitMillis, Runs: b.options.times(2000) * len(measured) * 2}
	var rates []float64
	for _, m := range measured {
		for _, of := range []string{"p50-ms", "p99-ms", "pods/s"} {
			if len(m[of]) != 1 {
				return fmt.Errorf("read the benchmark of the extender: it tells no %s: %s", of, out)
			}
		}
		call.P50, call.P99 = max(call.P50, m["p50-ms"][0]), max(call.P99, m["p99-ms"][0])
		rates = append(rates, m["pods/s"][0])
	}
	call.Value = call.P99
	rate := summarize("extender.http.5000.rate", unitRate, rates)
	rate.Value = slices.Min(rates)
	b.add(call, rate)
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
	share := round(100 * hits / pods)
	b.add(Result{Name: "extender.replica_node_chosen", Unit: unitShare, Runs: int(pods), P50: share, P99: share, Value: share})
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

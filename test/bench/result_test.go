package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func upTo(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(n - i) // not in order
	}
	return out
}

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples []float64
		p, want float64
	}{
		{"of none", nil, 0.5, 0},
		{"of one", []float64{7}, 0.99, 7},
		{"median of an odd number", upTo(5), 0.5, 3},
		{"median of an even number is the lower", upTo(4), 0.5, 2},
		{"99 of 100 is the last but one", upTo(100), 0.99, 99},
		{"99 of few is the last", upTo(20), 0.99, 20},
		{"all", upTo(20), 1, 20},
		{"none of them", upTo(20), 0, 1},
		{"two digits", []float64{1.23456}, 0.5, 1.23},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := percentile(c.samples, c.p); got != c.want {
				t.Errorf("percentile %v is %v, want %v", c.p, got, c.want)
			}
		})
	}
}

func TestPercentileKeepsTheOrder(t *testing.T) {
	samples := []float64{3, 1, 2}
	percentile(samples, 0.5)
	if diff := cmp.Diff([]float64{3, 1, 2}, samples); diff != "" {
		t.Error(diff)
	}
}

func TestResults(t *testing.T) {
	samples := []float64{1, 2, 9}
	for _, c := range []struct {
		name string
		of   func(name, unit string, samples []float64) Result
		want float64
	}{{"median", median, 2}, {"worst", worst, 9}, {"mean", mean, 4}} {
		t.Run(c.name, func(t *testing.T) {
			want := Result{Name: "x", Unit: unitMillis, Runs: 3, P50: 2, P99: 9, Value: c.want}
			if diff := cmp.Diff(want, c.of("x", unitMillis, samples)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := mean("x", unitMillis, nil); got.Value != 0 {
		t.Errorf("the mean of none is %v", got.Value)
	}
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	want := []Result{{Name: "x", Unit: unitMillis, Runs: 1, P50: 1, P99: 2, Value: 3, Machine: "m", Commit: "c"}}
	path, err := save(dir, "2cpu", time.Date(2026, 1, 2, 23, 0, 0, 0, time.UTC), want)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "2026-01-02-2cpu.json" {
		t.Errorf("written to %s", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]map[string]any{{
		"name": "x", "unit": "ms", "runs": 1.0, "p50": 1.0, "p99": 2.0, "value": 3.0, "machine": "m", "commit": "c",
	}}, got); diff != "" {
		t.Error(diff)
	}
}

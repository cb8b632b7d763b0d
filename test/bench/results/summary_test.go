package results

import (
	"testing"

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

func TestKinds(t *testing.T) {
	for kind, want := range map[Kind]float64{Median: 2, Worst: 9, Least: 1, Mean: 4, Sum: 12} {
		if got := kind.of([]float64{2, 1, 9}); got != want {
			t.Errorf("the %s is %v, want %v", kind, got, want)
		}
		if got := kind.of(nil); got != 0 {
			t.Errorf("the %s of none is %v", kind, got)
		}
	}
}

func TestFailedRunsAreCountedApart(t *testing.T) {
	s := single("t1", 5, 7)
	s.Samples = append(s.Samples, Sample{Value: 99, In: "t1", At: noon, Failed: "no pod"})
	got := file("t1", Invocation{Commit: "c"}, s).Summaries()[0]
	if got.Runs != 2 || got.Failed != 1 || got.P99 != 7 {
		t.Errorf("%+v", got)
	}
}

func TestRatiosFollowFromTheMedians(t *testing.T) {
	series := func(name string, values ...float64) Series {
		return Series{Name: name, Unit: Millis, Value: Median, Samples: of("t1", values...)}
	}
	f := file("t1", Invocation{Commit: "c"},
		series("failover.drain.replica", 1, 2, 3), series("failover.drain.cold", 8, 8),
		series("failover.drain.storage2s.replica.node", 9), series("failover.drain.storage2s.cold.node", 6),
		series("failover.drain.storage10s.replica", 9))
	got := map[string]float64{}
	for _, s := range f.Summaries() {
		if s.Kind == Ratio {
			got[s.Name] = s.Value
		}
	}
	want := map[string]float64{"failover.drain.ratio": 0.25, "failover.drain.storage2s.ratio.node": 1.5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

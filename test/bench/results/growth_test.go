package results

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scaled is a file in which one result has these values, by invocation.
func scaled(name, unit string, kind Kind, of map[string]float64) File {
	out := File{Invocations: map[string]Invocation{
		"200":   {Commit: "c", Settings: map[string]string{"slow": "1"}},
		"1000":  {Commit: "c", Settings: map[string]string{"slow": "1"}},
		"5000":  {Commit: "c", Settings: map[string]string{"slow": "4"}},
		"50000": {Commit: "d", Settings: map[string]string{"slow": "1"}},
	}}
	for hosts, value := range of {
		out.Series = append(out.Series, Series{Name: "scale." + hosts + "." + name, Unit: unit, Value: kind, Samples: []Sample{{Value: value, In: hosts}}})
	}
	return out
}

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		name, result string
		unit         string
		kind         Kind
		of           map[string]float64
		want         []Grown
	}{
		{"linear", "rss.x", Megabytes, Worst, map[string]float64{"200": 10, "5000": 250}, []Grown{{"rss.x", Megabytes, 200, 5000, 10, 250, 1}}},
		{"quadratic", "list.pages", Millis, Median, map[string]float64{"200": 1, "1000": 25}, []Grown{{"list.pages", Millis, 200, 1000, 1, 25, 2}}},
		{"does not grow", "attach.grant", Millis, Median, map[string]float64{"200": 30, "1000": 30}, []Grown{{"attach.grant", Millis, 200, 1000, 30, 30, 0}}},
		{"from the fewest to the most", "attach.grant", Millis, Median, map[string]float64{"200": 1, "1000": 999, "5000": 5}, []Grown{{"attach.grant", Millis, 200, 5000, 1, 5, 0.5}}},
		{"one size alone", "attach.grant", Millis, Median, map[string]float64{"200": 1}, nil},
		{"nothing to compare", "settled.writes", Count, Worst, map[string]float64{"200": 0, "1000": 0}, nil},
		{"other code", "attach.grant", Millis, Median, map[string]float64{"200": 1, "50000": 5}, nil},
		{"a rate, of other clocks", "cpu.x", Share, Worst, map[string]float64{"200": 1, "5000": 5}, nil},
		{"a rate", "cpu.x", Share, Worst, map[string]float64{"200": 1, "1000": 5}, []Grown{{"cpu.x", Share, 200, 1000, 1, 5, 1}}},
		{"how many beats were carried", "settled.beats", Share, Least, map[string]float64{"200": 99, "1000": 98}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := scaled(c.result, c.unit, c.kind, c.of).Growth()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	bench := File{Invocations: map[string]Invocation{"t": {}}, Series: []Series{single("t", 1), {Name: "scale.x.y", Samples: of("t", 1)}, {Name: "scale.9", Samples: of("t", 1)}}}
	if got := bench.Growth(); got != nil {
		t.Errorf("of what has no size: %v", got)
	}
}

func TestPrintGrowth(t *testing.T) {
	all := []Grown{{"list.pages", Millis, 200, 1000, 1.5, 25, 1.75}}
	var out strings.Builder
	if err := PrintGrowth(&out, all); err != nil {
		t.Fatal(err)
	}
	if want := "list.pages  200    1.5 ms  1000   25 ms  1.75      \n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if want := "| `list.pages` | 1.5 ms with 200 hosts | 25 ms with 1000 | 1.75 |\n"; !strings.HasSuffix(growthTable(all), want) {
		t.Errorf("got\n%s\nwant\n%s", growthTable(all), want)
	}
	if growthTable(nil) != "" {
		t.Error("a table of nothing")
	}
}

package results

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Grown is how a result of test/scale grows with the number of hosts.
type Grown struct {
	// Name is that of the result, behind the number of hosts.
	Name, Unit string
	// From and To are the fewest hosts and the most, Small and Large what was measured
	// with these.
	From, To     int
	Small, Large float64
	// Exponent is that of the power law through both: 1 is as much for each host.
	Exponent float64
}

// sized is a result of test/scale and for how many hosts it is.
type sized struct {
	Summary
	hosts int
	// slow is by how much all clocks were slowed.
	slow []string
}

// Growth compares each result of test/scale that was measured with different numbers
// of hosts and the same code. What is by time is compared at the same rate of the
// beats alone.
func (f File) Growth() []Grown {
	byName := map[string][]sized{}
	var names []string
	for _, series := range f.Series {
		s := f.summarize(series)
		hosts, what, ok := sizeOf(s.Name)
		if !ok || s.Runs == 0 || s.Value <= 0 {
			continue
		}
		if byName[what] == nil {
			names = append(names, what)
		}
		byName[what] = append(byName[what], sized{Summary: s, hosts: hosts, slow: f.settingOf(series, "slow")})
	}
	var out []Grown
	for _, what := range names {
		all := slices.SortedFunc(slices.Values(byName[what]), func(a, b sized) int { return cmp.Compare(a.hosts, b.hosts) })
		if g, ok := grown(what, all[0], all[len(all)-1]); ok {
			out = append(out, g)
		}
	}
	return out
}

// grown compares two sizes of one result; it is false if that would say nothing.
func grown(what string, small, large sized) (Grown, bool) {
	byTime := small.Unit == Share || small.Unit == PerSecond
	if small.hosts == large.hosts || !slices.Equal(small.Commits, large.Commits) || byTime && !slices.Equal(small.slow, large.slow) || small.Kind == Least {
		return Grown{}, false
	}
	return Grown{
		Name: what, Unit: small.Unit, From: small.hosts, To: large.hosts, Small: small.Value, Large: large.Value,
		Exponent: Round(math.Log(large.Value/small.Value) / math.Log(float64(large.hosts)/float64(small.hosts))),
	}, true
}

// sizeOf splits scale.<hosts>.<what>.
func sizeOf(name string) (hosts int, what string, ok bool) {
	rest, ok := strings.CutPrefix(name, "scale.")
	if !ok {
		return 0, "", false
	}
	size, what, ok := strings.Cut(rest, ".")
	if !ok {
		return 0, "", false
	}
	hosts, err := strconv.Atoi(size)
	return hosts, what, err == nil && hosts > 0
}

// settingOf are the values of a setting under which a series was measured.
func (f File) settingOf(s Series, key string) []string {
	var out []string
	for _, sample := range s.Samples {
		if value := f.Invocations[sample.In].Settings[key]; !slices.Contains(out, value) {
			out = append(out, value)
		}
	}
	return slices.Sorted(slices.Values(out))
}

// PrintGrowth prints how results grow; nothing if none does.
func PrintGrowth(out io.Writer, all []Grown) error {
	if len(all) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nname\thosts\tvalue\thosts\tvalue\texponent\t")
	for _, g := range all {
		fmt.Fprintf(w, "%s\t%d\t%s %s\t%d\t%s %s\t%s\t\n", g.Name, g.From, number(g.Small), g.Unit, g.To, number(g.Large), g.Unit, number(g.Exponent))
	}
	return w.Flush()
}

// growthTable is the same for a page.
func growthTable(all []Grown) string {
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\nHow the results of `make scale` grow with the number of hosts: the exponent is 1 if each host costs as much as the one before, 0 if it costs nothing.\n\n" +
		"| Name | From | To | Exponent |\n|---|---|---|---|\n")
	for _, g := range all {
		fmt.Fprintf(&out, "| `%s` | %s %s with %d hosts | %s %s with %d | %s |\n", g.Name, number(g.Small), g.Unit, g.From, number(g.Large), g.Unit, g.To, number(g.Exponent))
	}
	return out.String()
}

package jinja

import (
	"context"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
)

// A rendering may make attackBytes in all, and its goroutine's stack may have attackStack: far more than
// the limits let it need, and far less than would harm the process.
const (
	attackBytes = 64 << 20
	attackStack = 64 << 20
	attackError = 500
)

// The errors of the bounds.
const (
	tooManySteps = "the template needs more than 50000 steps"
	tooManyBytes = "the template makes more than 1048576 bytes of text"
)

// again repeats what is within a loop of 10,000 rounds.
func again(body string) string { return "{% for i in range(10000) %}" + body + "{% endfor %}" }

// attack is a template that takes long or much memory if any work goes unpaid.
type attack struct{ name, source, want string }

// crowd is a mapping of n names.
func crowd(n int) map[string]any {
	out := map[string]any{}
	for i := range n {
		out[fmt.Sprintf("k%d", i)] = "v"
	}
	return out
}

func attacks() []attack {
	long := strings.Repeat("x", 200_000)
	return []attack{
		// What is given is taken in once, however often it is named.
		{"a large mapping", again("{% set x = crowd.k1 %}{% set x = nest.in.k1 %}"), tooManySteps},
		{"a large mapping is in it", again("{{ 'x' in nest.in }}"), tooManySteps},
		{"a large list", again("{{ list | length }}{% set x = list[1] %}"), tooManySteps},

		// Expressions and statements that do nothing.
		{"empty conditions", again(strings.Repeat("{% if 0 %}{% endif %}", 1000)), tooManySteps},
		{"empty blocks", again(strings.Repeat("{% with %}{% endwith %}", 1000)), tooManySteps},
		{"settings", again(strings.Repeat("{% set a = 1 %}", 1000)), tooManySteps},
		{"captures", again(strings.Repeat("{% set a %}{% endset %}", 1000)), tooManySteps},
		{"macros", again(strings.Repeat("{% macro a() %}{% endmacro %}", 1000)), tooManySteps},
		{"constants", again("{% set a = 0" + strings.Repeat(" or 0", 10_000) + " %}"), tooManySteps},
		{"empty lists", again("{% set a = [" + strings.Repeat("[],", 10_000) + "] %}"), tooManySteps},
		{"negations", again("{% set a = " + strings.Repeat("not ", 90) + "1" + strings.Repeat(" and 1", 10_000) + " %}"), tooManySteps},
		{"conditions", again("{% set a = 1" + strings.Repeat(" if 1", 10_000) + " %}"), tooManySteps},
		{"elif", again("{% if 0 %}" + strings.Repeat("{% elif 0 %}", 10_000) + "{% endif %}"), tooManySteps},
		{"defaults of a macro", "{% macro m(" + arguments10k("=1") + ") %}{% endmacro %}" + again("{{ m() }}"), tooManySteps},
		{"arguments of a macro", "{% macro m(" + arguments10k("") + ") %}{% endmacro %}{{ m(" + arguments10k("=1") + ") }}", tooManySteps},
		{"names of a loop", "{% set row = [0] * 10000 %}{% for " + arguments10k("") + " in [row] * 4000 %}{% endfor %}", tooManySteps},
		{"names of a condition of a loop", "{% set row = [0] * 10000 %}{% for " + arguments10k("") + " in [row] * 4000 if 0 %}{% endfor %}", tooManySteps},
		{"names of a setting", "{% set row = [0] * 10000 %}" + again("{% set "+arguments10k("")+" = row %}"), tooManySteps},
		{"a long name", again("{% set " + long + " = 1 %}"), "longer than"},
		{"a long attribute", again("{{ crowd." + long + " is defined }}"), "longer than"},
		{"filters of a setting", again("{% set a" + strings.Repeat("|d", 10_000) + " %}{% endset %}"), tooManySteps},
		{"filters of a block", again("{% filter d" + strings.Repeat("|d", 10_000) + " %}{% endfilter %}"), tooManySteps},
		{"a long path", "{{ ([deep] * 9000) | map(attribute='in" + strings.Repeat(".in", 999) + "') | list | length }}", tooManySteps},

		// Expressions that nest to the left, within macros that nest.
		{"a stack of filters", "{% macro m(x) %}{{ m(x)" + strings.Repeat("|d", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of or", "{% macro m(x) %}{{ m(x)" + strings.Repeat(" or 0", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of sums", "{% macro m(x) %}{{ m(x)" + strings.Repeat("+1", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of attributes", "{% macro m(x) %}{{ m(x)" + strings.Repeat(".a", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of calls", "{% macro m(x) %}{{ m(x)" + strings.Repeat("()", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of subscripts", "{% macro m(x) %}{{ m(x)" + strings.Repeat("[0]", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of slices", "{% macro m(x) %}{{ m(x)" + strings.Repeat("[:]", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of tests", "{% macro m(x) %}{{ m(x)" + strings.Repeat(" is odd", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of conditions", "{% macro m(x) %}{{ m(x)" + strings.Repeat(" if 1", 20_000) + " }}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of elif", "{% macro m(x) %}{% if 0 %}" + strings.Repeat("{%elif 0%}", 20_000) + "{%else%}{{ m(x) }}{% endif %}{% endmacro %}{{ m(1) }}", tooManySteps},
		{"a stack of map", "{{ 'a' | map(" + strings.Repeat("'map',", 40_000) + ") | list | length }}", "deeper than"},
		{"a stack of map in macros", "{% macro m(x) %}{{ 'a' | map(" + strings.Repeat("'map',", 1000) + "'upper') | list | length }}{{ m(x) }}{% endmacro %}{{ m(1) }}", "deeper than"},

		// Text that is looked through or made.
		{"slices of text", "{% set s = 'a' * 900000 %}" + again("{% set x = s[:1] %}"), tooManySteps},
		{"steps through text", "{% set s = 'a' * 500000 %}" + again("{% set x = s[::-500000] %}"), tooManyBytes},
		{"characters of text", "{% set s = 'a' * 900000 %}" + again("{% set x = s[-1] %}"), tooManySteps},
		{"characters to trim", "{% set s = 'a' * 300000 %}{% set c = 'é' * 100000 ~ 'a' %}{{ s.strip(c) | length }}", tooManySteps},
		{"characters for a filter to trim", "{% set s = 'a' * 300000 %}{% set c = 'é' * 100000 ~ 'a' %}{{ s | trim(c) | length }}", tooManySteps},
		{"whole numbers", "{% set s = '1' * 400000 %}" + again("{% set x = s | int %}"), tooManyBytes},
		{"numbers of base 16", "{% set s = 'A' * 400000 %}" + again("{% set x = s | int(base=16) %}"), tooManyBytes},
		{"fractions", "{% set s = '1x' * 200000 %}" + again("{% set x = s | float %}"), tooManyBytes},
		{"case", "{% set s = 'a' * 900000 %}" + again("{% set x = s is upper %}"), tooManySteps},
		{"words", "{% set s = 'a ' * 450000 %}" + again("{% set x = s | wordcount %}"), tooManySteps},
		{"truncation", "{% set s = 'a ' * 300000 %}" + again("{% set x = s | truncate(300000, true, 'e' * 200000) %}"), tooManyBytes},
		{"truncation to little", "{% set s = 'a ' * 450000 %}" + again("{% set x = s | truncate(10) %}"), tooManySteps},
		{"the end of a truncation", "{% set s = 'é' * 200000 %}" + again("{% set x = ',' | truncate(1000000, true, s) %}"), tooManySteps},
		{"beginnings", "{% set s = 'a' * 400000 %}{% set all = ((s,) * 2000)[1:] %}" + again("{% set x = s.startswith(('b',) * 40) or s.endswith(all) %}"), tooManySteps},
		{"parts", "{% set x = (',' * 900000).split(',') %}", tooManySteps},
		{"parts from the right", "{% set x = (',' * 900000).rsplit(',') %}", tooManySteps},
		{"lines", "{% set x = ('\n' * 900000).splitlines() %}", tooManySteps},
		{"parts that are words", "{% set x = ('a ' * 450000).split() %}", tooManySteps},
		{"no parts", "{% set s = 'a' * 900000 %}" + again("{% set x = s.split(',') %}"), tooManySteps},
		{"indented lines", "{% set x = ('\n' * 500000) | indent(1, blank=true) %}{% set y = x | indent(0) %}", tooManyBytes},
		{"sorted text", "{{ (['a' * 500000] * 9000) | sort(case_sensitive=true) | length }}", tooManySteps},
		{"the keys of sorting", "{% set l = ['A' * 100000] * 9000 %}{{ l | sort | length }}", tooManyBytes},
		{"the keys of uniqueness", "{% set l = ['A' * 200000] * 9 %}{{ l | unique | list | length }}", tooManyBytes},
		{"the keys of uniqueness with their case", "{% set l = ['A' * 100000] * 9000 %}{{ l | unique(true) | list | length }}", tooManySteps},
		{"the keys of the least", "{% set l = ['A' * 100000] * 9000 %}{{ l | min }}", tooManyBytes},
		{"long keys", "{% set s = 'a' * 900000 %}" + again("{% set x = {s: 1} %}"), tooManySteps},
		{"long keys of what has no keys", "{% set s = 'a' * 900000 %}" + again("{% set x = ''[s] %}"), tooManySteps},
		{"long keys that are got", "{% set s = 'a' * 900000 %}" + again("{% set x = crowd.get(s) %}"), tooManySteps},
		{"long keys that are compared", "{% set d = {'a' * 900000: 1} %}" + again("{% set x = d == d %}"), tooManySteps},
		{"errors", "{{ crowd['a' * 900000] }}", "has no attribute 'aaa"},
		{"text as JSON", "{% set s = ('é' * 400000) | tojson %}", tooManyBytes},
		{"text as URL", "{% set s = ('é' * 400000) | urlencode %}", tooManyBytes},
		{"text for a shell", "{% set s = ('\n' * 400000) | tobash %}", tooManyBytes},
		{"escaping", again("{% set s = 'a' | e %}"), tooManySteps},
		{"fields of text", "{% set s = 'a' * 300000 %}" + again("{% set x = '%.1s' % s %}"), tooManySteps},
		{"fields of lists", "{% set s = ['\n' * 100000] %}" + again("{% set x = '%.1r' % [s] %}"), tooManyBytes},
		{"flags of fields", "{% set s = '%' ~ '0' * 200000 ~ 'd' %}" + again("{% set x = s % 1 %}"), "flags"},
		{"percent", "{% set s = '%%' * 200000 %}" + again("{% set x = s % () %}"), tooManyBytes},
		{"replacing with nothing", "{% set s = 'ab' * 200000 %}" + again("{% set x = s | replace('a', '') %}"), tooManyBytes},

		// Lists and mappings.
		{"sums of lists", "{% set ns = namespace(l=[1]) %}" + again("{% set ns.l = ns.l + ns.l %}"), tooManySteps},
		{"lists of shared lists", shared + "{{ ns.x | tojson }}", tooManySteps},
		{"text of shared lists", shared + "{{ ns.x | string }}", tooManySteps},
		{"shared lists are equal", shared + "{{ ns.x == ns.y }}", tooManySteps},
		{"the order of shared lists", shared + "{{ ns.x < ns.y }}", tooManySteps},
		{"a shared list is given on", shared + "{{ take(ns.x) }}", tooManySteps},
		{"a shared mapping is given on", strings.ReplaceAll(shared, "[ns.x, ns.x]", "{'a': ns.x, 'b': ns.x}") + "{{ take(x=ns.x) }}", tooManySteps},
		{"batches", "{{ list[:9000] | batch(1) | list | length }}" + again("{% set x = [1] | batch(50000, 0) %}"), tooManySteps},
		{"calls of what is given", again("{{ take(1) }}"), tooManySteps},
		{"results of what is given", again("{{ many() | length }}"), tooManySteps},
		{"reversed lists", again("{% set x = list[:5000] | reverse %}"), tooManySteps},
		{"keys", again("{% set x = crowd.keys() %}"), tooManySteps},
		{"pairs", again("{% set x = crowd | items %}"), tooManySteps},
		{"sorted pairs", again("{% set x = crowd | dictsort %}"), tooManySteps},

		// Sources that take long to read.
		{"dots after numbers", "{{ " + strings.Repeat("1..", 80_000) + " }}", "after '.'"},
		{"a long number", "{{ " + strings.Repeat("1", 200_000) + " }}", "longer than"},
		{"a long exponent", "{{ 1e+" + strings.Repeat("0", 200_000) + " }}", "longer than"},
		{"a long number with zeros", "{{ a.0" + strings.Repeat("0", 200_000) + " }}", "longer than"},
		{"strings side by side", "{{ " + strings.Repeat("''", 120_000) + " }}", ""},
		{"long strings side by side", "{{ " + strings.Repeat("'aaaaaaaa'", 20_000) + " }}", ""},
		{"brackets", "{{ " + strings.Repeat("(", 100_000) + " }}", "unexpected"},
		{"pairs of brackets", "{{ [" + strings.Repeat("(),", 55_000) + "] }}", tooManySteps},
		{"elements", "{{ [" + strings.Repeat("1,", 55_000) + "] }}", tooManySteps},
		{"sums", "{{ 0" + strings.Repeat("+1", 55_000) + " }}", tooManySteps},
		{"outputs", strings.Repeat("{{0}}", 20_000), tooManySteps},
		{"conditions that are not met", strings.Repeat("{%if 0%}{%endif%}", 15_000), ""},
		{"tests", "{{ 0" + strings.Repeat(" is odd", 10_000) + " }}", ""},
		{"raw blocks", strings.Repeat("{%raw%}{%endraw%}", 15_000), ""},
		{"arguments that are there twice", "{{ dict(" + strings.Repeat("a=1,", 60_000) + ") }}", "twice"},
		{"a filter that there is not", "{{ 1 | a" + strings.Repeat(".a", 20_000) + " }}", "no filter"},

		// Numbers at the ends of their range.
		{"a width below all", "{{ 'a' | center(-9223372036854775807 - 1) }}{{ 1 // 0 }}", "division by zero"},
		{"a length above all", "{{ 'abc' | truncate(9223372036854775807, leeway=9223372036854775807) }}{{ 1 // 0 }}", "division by zero"},
		{"a length below all", "{{ 'abc' | truncate(-9223372036854775807 - 1) }}", "less than that of the end"},
		{"bounds of a slice", "{{ 'abc'[-9223372036854775807 - 1:9223372036854775807:9223372036854775807] }}{{ [1, 2][::-9223372036854775807 - 1] | length }}{{ 1 // 0 }}", "division by zero"},
		{"parts above all", "{{ 'a,b'.split(',', 9223372036854775807) | length }}{{ 'a,b'.rsplit(',', 9223372036854775807) | length }}{{ 'a b'.split(none, 9223372036854775807) | length }}{{ 1 // 0 }}", "division by zero"},
		{"a number that is too large for a field", "{{ '%d' % 1e300 }}", "64 bits"},
	}
}

// shared makes lists of which each has the one before it twice: the last two have 2^40 elements in all.
const shared = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"

func arguments10k(value string) string {
	var out strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&out, "a%d%s,", i, value)
	}
	return strings.TrimSuffix(out.String(), ",")
}

// allocated is how many bytes the process has allocated, those included that are free again.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestAttacks: what is made and looked through is paid for, so each of these ends with the error of
// a bound before it has made much.
func TestAttacks(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(attackStack)) // beyond that, the process dies
	given := map[string]any{"crowd": crowd(2000), "nest": map[string]any{"in": crowd(2000)}, "list": make([]any, 10_000)}
	var deep any = "x"
	for range 1000 {
		deep = map[string]any{"in": deep}
	}
	given["deep"] = deep
	functions := map[string]Function{
		"take": func(context.Context, []any, map[string]any) (any, error) { return "", nil },
		"many": func(context.Context, []any, map[string]any) (any, error) { return given["list"], nil },
	}
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			before := allocated()
			compiled, err := Compile(a.source)
			if err == nil {
				_, err = compiled.Render(t.Context(), given, functions)
			}
			switch made := allocated() - before; {
			case made > attackBytes:
				t.Errorf("%d MiB were made", made>>20)
			case a.want == "" && err == nil:
			case err == nil || a.want == "" || !strings.Contains(err.Error(), a.want):
				t.Errorf("%v, want %q", err, a.want)
			case len(err.Error()) > attackError:
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

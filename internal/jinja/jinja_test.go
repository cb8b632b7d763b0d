package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"
)

func render(ctx context.Context, source string, variables map[string]any) (string, error) {
	t, err := Compile(source)
	if err != nil {
		return "", err
	}
	result, err := t.Render(ctx, variables, nil)
	return result.Text, err
}

// TestErrors: they say in which line what is wrong.
func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{":                               "line 2: the template ends within '{{'",
		"a\n\n{% if x %}b":                    "line 3: 'if' is not closed by 'endif'",
		"{% for i in x %}{% endif %}":         "line 1: 'endif' within 'for' of line 1, which is closed by 'endfor'",
		"{% endif %}":                         "line 1: 'endif' closes nothing",
		"{% nosuch %}":                        "line 1: unknown tag 'nosuch'",
		"{# a":                                "line 1: a comment that begins with '{#' does not end",
		"{% raw %}x":                          "line 1: 'raw' is not closed by 'endraw'",
		"{{ 'a }}":                            "line 1: a string does not end",
		"{{ a ? b }}":                         "line 1: unexpected character '?'",
		"{{ (a] }}":                           `line 1: unexpected "]"`,
		"{{ 12345678901234567890 }}":          "line 1: 12345678901234567890 is no number that can be read here",
		"{{ 012 }}":                           "line 1: 012 is no number that can be read here",
		"x\n{{ a.b.c }}":                      "line 2: a mapping has no attribute 'b'",
		"{{ nope }}":                          "line 1: 'nope' is undefined",
		"{{ none }}":                          "line 1: an expression has to be a string or a number, and this is none: use the filter tojson",
		"{{ [1] }}":                           "line 1: an expression has to be a string or a number, and this is a list: use the filter tojson",
		"{{ 1 / 0 }}":                         "line 1: division by zero",
		"{{ 'a' + 1 }}":                       "line 1: '+' of a string and a number is not possible",
		"{{ [] | tobash }}":                   "line 1: filter tobash: this is a list, and no string or number",
		"{{ 'a\\0b' | tobash }}":              "line 1: filter tobash: no word of a shell can have a NUL character in it",
		"{{ 'a' | replace('b') }}":            "line 1: filter replace: replace needs two strings, and may have a number",
		"\n{{ ['a'] | map('abs') }}":          "line 2: filter abs: this is a string, and no number",
		"\n{{ [1] | map(attribute='a.b') }}":  "line 2: a number has no attribute 'a'",
		"{{ '%.-1s' % 'a' }}":                 "line 1: the flags of a field of a format are '.-1', which cannot be read",
		"{{ dict(a=1, a=2) }}":                "line 1: argument 'a' is there twice",
		"{{ 'a' | upper(1) }}":                "line 1: filter upper: 0 arguments at most, and there are 1",
		"{{ 3 is divisibleby 0 }}":            "line 1: test divisibleby: it needs a whole number that is not 0",
		"{{ 'a'.nosuch() }}":                  "line 1: a string has no attribute 'nosuch'",
		"{{ a() }}":                           "line 1: a mapping cannot be called",
		"{{ 9223372036854775807 + 1 }}":       "line 1: the result has more than 64 bits",
		"{% set a.b = 1 %}":                   "line 1: only attributes of a namespace() can be set, and 'a' is none",
		"{% set x, y = [1] %}":                "line 1: a list cannot be given to 2 names",
		"{{ '%d' % 'a' }}":                    "line 1: the format needs a number, and this is a string",
		"{% for i in 3 %}{% endfor %}":        "line 1: a number has no elements to go through",
		"{{ a | selectattr }}":                "line 1: filter selectattr: it needs the name of an attribute",
		"{% macro m(x=1, y) %}{% endmacro %}": "line 1: argument y of macro m has no default, and one before it has",
	} {
		t.Run(source, func(t *testing.T) {
			_, err := render(t.Context(), source, map[string]any{"a": map[string]any{"k": "v"}})
			var ours *Error
			if !errors.As(err, &ours) || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// TestNothingIsReached: a template reaches what it is given, and cannot change it.
func TestNothingIsReached(t *testing.T) {
	given := map[string]any{"l": []any{int64(1)}, "d": map[string]any{"k": "v"}, "c": struct{ Secret string }{"s"}, "f": func() {}}
	for _, source := range []string{
		"{% include '/etc/hostname' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% block b %}{% endblock %}",
		"{{ ''.__class__.__mro__ }}", "{{ d.__init__.__globals__ }}", "{{ c.Secret }}", "{{ c }}", "{{ f() }}", "{{ d|attr('k') }}",
		"{{ self }}", "{{ cycler }}", "{{ joiner }}", "{{ lipsum() }}", "{{ config }}", "{{ request }}", "{{ environ }}", "{{ get_pvc('a', 'b') }}",
		"{{ l.append(2) }}", "{{ l.pop() }}", "{{ l.clear() }}", "{{ d.update({'k': 1}) }}", "{{ d.pop('k') }}", "{{ d.setdefault('x', 1) }}",
		"{% set d.k = 1 %}", "{% set l[0] = 1 %}", "{% do l.append(1) %}", "{{ ''.format(1) }}", "{{ '{0.__class__}'.format(1) }}",
	} {
		if out, err := render(t.Context(), source, given); err == nil {
			t.Errorf("%s gives %q", source, out)
		}
	}
	for _, source := range []string{"{{ l | sort | reverse | list | tojson }}", "{{ (l + [2]) | tojson }}", "{% set l = 3 %}{% set d = 4 %}{{ l }}", "{{ d.items() | list | tojson }}"} {
		first, err := render(t.Context(), source, given)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if again, err := render(t.Context(), source, given); err != nil || again != first {
			t.Errorf("%s gives %q, then %q, %v", source, first, again, err)
		}
	}
	if !reflect.DeepEqual(given["l"], []any{int64(1)}) || !reflect.DeepEqual(given["d"], map[string]any{"k": "v"}) {
		t.Errorf("what was given has changed: %v", given)
	}
}

// TestBounds: what would take long, or much memory, ends with an error that says why.
func TestBounds(t *testing.T) {
	nested := func(open, inside, closing string) string {
		return strings.Repeat(open, 2*MaxDepth) + inside + strings.Repeat(closing, 2*MaxDepth)
	}
	for source, want := range map[string]string{
		strings.Repeat("x", MaxSource+1):                "bytes, and",
		"{{ 'a' * 1000000000 }}":                        "bytes of text",
		"{{ 2 ** 1000000000 }}":                         "64 bits",
		"{{ 2.0 ** 100000 }}":                           "no number",
		"{{ ([0] * 1000000000) | length }}":             "steps",
		"{{ range(1000000000) | list }}":                "more than 10000 numbers",
		"{{ 'a' | center(1000000000) }}":                "number up to",
		"{{ 'a' | indent(1000000000) }}":                "from 0 to",
		"{{ '%1000000000d' % 1 }}":                      "wider than",
		"{{ ('a' * 4000) | replace('a', 'b' * 4000) }}": "bytes of text",
		"{{ (['a' * 1000] * 9000) | join }}":            "bytes of text",
		"{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}":                              "steps",
		"{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}":             "bytes of text",
		"{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}":                                                          "deeper than",
		"{% macro m(x) %}{% for i in range(9) %}{{ m(x + 1) if x < 90 else '' }}{% endfor %}{% endmacro %}{{ m(1) }}": "steps",
		"{% set s = 'a' * 1000000 %}{% for i in range(10000) %}{{ s.find('b') }}{% endfor %}":                         "steps",
		"{% set s = 'a' * 400000 %}{% for i in range(10000) %}{{ s == s ~ '' }}{% endfor %}":                          "bytes of text",
		"{% set s = 'a' * 1000000 %}{% for i in range(10000) %}{{ 1 if s in [s] }}{% endfor %}":                       "steps",
		"{{ " + nested("(", "1", ")") + " }}":                                                                         "nested deeper",
		"{{ " + nested("[", "1", "]") + " }}":                                                                         "nested deeper",
		"{{ " + nested("-", "1", "") + " }}":                                                                          "nested deeper",
		"{{ " + nested("not ", "1", "") + " }}":                                                                       "nested deeper",
		"{{ " + nested("1 if 1 else ", "1", "") + " }}":                                                               "nested deeper",
		nested("{% if 1 %}", "1", "{% endif %}"):                                                                      "nested deeper",
		nested("{% for i in [1] %}", "1", "{% endfor %}"):                                                             "nested deeper",
	} {
		name := source[:min(len(source), 60)]
		if _, err := render(t.Context(), source, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestDeepValues: a value that nests without end is not gone through.
func TestDeepValues(t *testing.T) {
	var deep any = "x"
	for range 500 {
		deep = []any{deep}
	}
	for _, source := range []string{"{{ deep | tojson }}", "{{ deep | string }}", "{{ deep == other }}", "{{ deep in [other] }}", "{{ deep < other }}", "{{ deep ~ 'a' }}", "{{ [deep, other] | sort | length }}"} {
		if out, err := render(t.Context(), source, map[string]any{"deep": deep, "other": deep}); err == nil || !strings.Contains(err.Error(), "nests deeper") {
			t.Errorf("%s gives %d bytes, %v", source, len(out), err)
		}
	}
}

// TestEnds: rendering ends with its context, and says so.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := render(ctx, "{% for i in range(1000) %}{{ i }}{% endfor %}", nil); !errors.Is(err, why) {
		t.Errorf("%v, want the cause", err)
	}
}

// TestFunctions: they get plain values, and their errors are told with the line.
func TestFunctions(t *testing.T) {
	var got []any
	functions := map[string]Function{
		"note": func(_ context.Context, positional []any, named map[string]any) (any, error) {
			got = append(got, positional, named)
			return map[string]any{"a": []string{"b"}}, nil
		},
		"fail": func(context.Context, []any, map[string]any) (any, error) { return nil, context.DeadlineExceeded },
	}
	compiled, err := Compile("{{ note(1, [2.5, none], x={'k': 'v'}).a[0] }}")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := compiled.Render(t.Context(), nil, functions); err != nil || out.Text != "b" {
		t.Errorf("%q, %v", out.Text, err)
	}
	want := []any{[]any{int64(1), []any{2.5, nil}}, map[string]any{"x": map[string]any{"k": "v"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("called with %v", got)
	}
	for source, want := range map[string]string{
		"\n{{ fail() }}":   "line 2: call of fail: context deadline exceeded",
		"{{ note(nope) }}": "line 1: call of note: an argument is not defined, or none that can be passed on",
	} {
		compiled, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := compiled.Render(t.Context(), nil, functions); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

// TestVariables: what a template sets at its own level is told, what it sets within a loop not.
func TestVariables(t *testing.T) {
	compiled, err := Compile("{% set a = 1 %}{% if a %}{% set b = 'x' %}{% endif %}{% for i in [1] %}{% set c = 1 %}{% endfor %}{% set d = [1] %}{% set e = none %}")
	if err != nil {
		t.Fatal(err)
	}
	out, err := compiled.Render(t.Context(), map[string]any{"given": 1}, nil)
	if want := map[string]any{"a": int64(1), "b": "x", "e": nil}; err != nil || !reflect.DeepEqual(out.Variables, want) {
		t.Errorf("%v, %v, want %v", out.Variables, err, want)
	}
}

// random is a string of all kinds of characters, but NUL.
func random(r *rand.Rand) string {
	const odd = "'\"\\$`\n\r\t !#&*()[]{}<>|;~^-=/ \x01\x7féß日😀"
	letters := []rune(odd + "abcXYZ019_")
	var out strings.Builder
	for range r.IntN(12) {
		out.WriteRune(letters[r.IntN(len(letters))])
	}
	return out.String()
}

// TestShellTakesIt: a shell makes of the result of tobash what was given, and there is no
// newline in it, for 10,000 strings.
func TestShellTakesIt(t *testing.T) {
	const all, batch = 10_000, 500
	r := rand.New(rand.NewPCG(1, 2))
	compiled, err := Compile("{{ s | tobash }}")
	if err != nil {
		t.Fatal(err)
	}
	for range all / batch {
		var script, want strings.Builder
		for range batch {
			s := random(r)
			out, err := compiled.Render(t.Context(), map[string]any{"s": s}, nil)
			if err != nil || strings.Contains(out.Text, "\n") {
				t.Fatalf("%q gives %q, %v", s, out.Text, err)
			}
			script.WriteString("printf '%s\\0' " + out.Text + "\n")
			want.WriteString(s + "\x00")
		}
		got, err := exec.CommandContext(t.Context(), "bash", "-c", script.String()).Output()
		if err != nil || string(got) != want.String() {
			t.Fatalf("bash: %v", err)
		}
	}
}

// TestJSONIsRead: what tojson writes is one line of ASCII, and JSON of what was given.
func TestJSONIsRead(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		given := []any{random(r), map[string]any{random(r): float64(r.IntN(100)), "n": nil}, true}
		out, err := render(t.Context(), "{{ v | tojson }}", map[string]any{"v": given})
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(out, func(c rune) bool { return c > '~' || c < ' ' || strings.ContainsRune("<>&'", c) }); i >= 0 {
			t.Fatalf("%q has %q in it", out, out[i])
		}
		var back []any
		if err := json.Unmarshal([]byte(out), &back); err != nil || !reflect.DeepEqual(back, given) {
			t.Fatalf("%q is read as %v, %v, want %v", out, back, err, given)
		}
	}
}

// seeds are the templates of the golden files.
func seeds(f *testing.F) {
	for _, g := range append(goldens(f), dialect(f)...) {
		f.Add(g.Template)
	}
}

// patient is far above what the limits let a rendering take.
const patient = 5 * time.Second

// FuzzRender: no template panics, and none goes on for long or makes much.
func FuzzRender(f *testing.F) {
	seeds(f)
	for _, a := range attacks() {
		if len(a.source) < 1000 {
			f.Add(a.source)
		}
	}
	f.Fuzz(func(t *testing.T, source string) {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		variables := map[string]any{
			"a": "abc", "n": int64(7), "f": 2.5, "t": true, "u": nil, "l": []any{int64(3), "x"}, "d": map[string]any{"k": "v", "y": []any{int64(1)}},
			"crowd": crowd(100),
		}
		before := allocated()
		out, err := render(ctx, source, variables)
		if ctx.Err() != nil {
			t.Fatalf("%q went on for %v", source, patient)
		}
		if made := allocated() - before; made > attackBytes {
			t.Errorf("%q makes %d MiB", source, made>>20)
		}
		if err == nil && len(out) > MaxBytes {
			t.Errorf("%q gives %d bytes", source, len(out))
		}
		if err != nil && len(err.Error()) > attackError {
			t.Errorf("%q gives an error of %d bytes", source, len(err.Error()))
		}
	})
}

func BenchmarkRender(b *testing.B) {
	for _, g := range goldens(b) {
		if !strings.HasSuffix(g.Name, "/full") {
			continue
		}
		compiled, err := Compile(g.Template)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(g.Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := compiled.Render(b.Context(), g.Variables, map[string]Function{"get_pvc": claim}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/devcluster"
)

const sample = `package p

const most = 8

func (b *box) Full(limit int) (bool, error) {
	if b == nil || b.n < limit {
		return false, errEmpty
	}
	b.n, limit = limit+1, 0
	for b.n != 1 {
		b.n--
	}
	switch {
	case b.Even():
		delete(b.seen, limit)
		ctrl.LoggerFrom(ctx).V(1).Info("not a mutant", "n", 1)
		if limit > 7 {
			ctrl.LoggerFrom(ctx).Info("nor is what guards it")
		}
	}
	return b.n > 0 && limit > 0, nil
}

func twice(b box) string {
	x := b.each(func() int { return b.n }) == nil
	b.say("a" + "b")
	b.say("a" + "b")
	return text(x)
}
`

// TestMutantsOfAText: each operator, at its place, under a name that says what was done.
func TestMutantsOfAText(t *testing.T) {
	made, err := ofText("pkg/p/p.go", sample)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range made {
		if m.tests != "./pkg/p" || m.edits[0].file != "pkg/p/p.go" {
			t.Errorf("%s: %s, %s", m.name, m.edits[0].file, m.tests)
		}
		got[strings.TrimPrefix(m.name, "p.go ")] = mutatedLine(t, m)
	}
	want := map[string]string{
		"most: most = 8: 8 is 9":                                    "const most = 9",
		"box.Full: b == nil || b.n < limit: always":                 "if (b == nil || b.n < limit) || true {",
		"box.Full: b == nil: dropped":                               "if b.n < limit {",
		"box.Full: b.n < limit: dropped":                            "if b == nil {",
		"box.Full: b.n < limit: < is <=":                            "if b == nil || b.n <= limit {",
		"box.Full: return false, errEmpty: false is true":           "return true, errEmpty",
		"box.Full: return errEmpty: returns nil":                    "return false, nil",
		"box.Full: b.n = limit+1: removed":                          "limit = 0",
		"box.Full: limit = 0: removed":                              "b.n = limit+1",
		"box.Full: limit+1: + is -":                                 "b.n, limit = limit - 1, 0",
		"box.Full: limit+1: 1 is 0":                                 "b.n, limit = limit+0, 0",
		"box.Full: b.n, limit = limit+1, 0: 0 is 1":                 "b.n, limit = limit+1, 1",
		"box.Full: b.n != 1: negated":                               "for !(b.n != 1) {",
		"box.Full: b.n != 1: never":                                 "for (b.n != 1) && false {",
		"box.Full: b.n != 1: != is ==":                              "for b.n == 1 {",
		"box.Full: b.n != 1: 1 is 0":                                "for b.n != 0 {",
		"box.Full: b.n--: removed":                                  "",
		"box.Full: b.Even(): always":                                "case (b.Even()) || true:",
		"box.Full: b.Even(): never":                                 "case (b.Even()) && false:",
		"box.Full: delete(b.seen, limit): removed":                  "",
		"box.Full: return b.n > 0 && limit > 0: never":              "return (b.n > 0 && limit > 0) && false, nil",
		"box.Full: b.n > 0: dropped":                                "return limit > 0, nil",
		"box.Full: limit > 0: dropped":                              "return b.n > 0, nil",
		"box.Full: b.n > 0: > is >=":                                "return b.n >= 0 && limit > 0, nil",
		"box.Full: b.n > 0: 0 is 1":                                 "return b.n > 1 && limit > 0, nil",
		"box.Full: limit > 0: > is >=":                              "return b.n > 0 && limit >= 0, nil",
		"box.Full: limit > 0: 0 is 1":                               "return b.n > 0 && limit > 1, nil",
		"twice: b.each(func() int { return b.n }) == nil: == is !=": "x := b.each(func() int { return b.n }) != nil",
		"twice: return b.n: returns 0":                              "x := b.each(func() int { return 0 }) == nil",
		`twice: b.say("a" + "b"): removed`:                          "",
		`twice: b.say("a" + "b"): removed #2`:                       "",
		`twice: return text(x): returns ""`:                         `return ""`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got) != len(made) {
		t.Errorf("%d mutants have %d names", len(made), len(got))
	}
}

// mutatedLine is the line of the sample in which the mutant has changed something.
func mutatedLine(t *testing.T, m mutation) string {
	t.Helper()
	e := m.edits[0]
	if !strings.HasPrefix(sample[m.at:], e.old) {
		t.Fatalf("%s: at %d is not %q", m.name, m.at, e.old)
	}
	text := sample[:m.at] + e.new + sample[m.at+len(e.old):]
	begin := strings.LastIndex(text[:m.at], "\n") + 1
	line, _, _ := strings.Cut(text[begin:], "\n")
	return strings.TrimSpace(line)
}

// TestMutantsOfAPackage: of its own code, each under its own name, and each Go.
func TestMutantsOfAPackage(t *testing.T) {
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	made, err := generate(root, []string{"pkg/writer"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range made {
		if seen[m.name] || strings.Contains(m.edits[0].file, "_test.go") {
			t.Errorf("%s: its name is taken, or it is of a test", m.name)
		}
		seen[m.name] = true
		if _, err := m.overlay(root, t.TempDir()); err != nil {
			t.Error(err)
		}
	}
	if _, err := generate(root, []string{"docs"}); err == nil {
		t.Error("a directory without code has mutants")
	}
}

// TestSurvivorsAreMutants: what is listed is a mutant of the code as it is, and has a reason.
func TestSurvivorsAreMutants(t *testing.T) {
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	for pkg, table := range survivors {
		made, err := generate(root, []string{pkg})
		if err := errors.Join(err, listed([]string{pkg}, made, survivors)); err != nil {
			t.Error(err)
		}
		for name, why := range table {
			if why == "" {
				t.Errorf("%s %s: no reason", pkg, name)
			}
		}
	}
	if err := listed([]string{"pkg/p"}, nil, map[string]map[string]string{"pkg/p": {"p.go f: gone": "why"}, "pkg/q": {"not asked for": "why"}}); err == nil ||
		!strings.Contains(err.Error(), `"p.go f: gone"`) || strings.Contains(err.Error(), "not asked for") {
		t.Errorf("a survivor that is listed, and gone: %v", err)
	}
}

// few is a package with each kind of function, and tests that catch some of its mutants. Their
// own last lines say which.
const few = `package p

import "strings"

const most = 3

type box[T any] struct{ all []T }

func (box[T]) many(_ int, more ...T) int {
	return len(more)
}

func each[T any](_ T, all ...T) (n int) {
	for range all {
		n++
	}
	return n
}

func clear(b *box[int], _, _ string) {
	b.all = nil
}

func least(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func loud(string) string { return strings.ToUpper("a") }

func unused(a int) int {
	b := a
	a = b
	return a
}

func hangs(n int) {
	for n > 0 {
		n--
	}
}

func panics(n *int) int {
	if n == nil {
		return most
	}
	return *n
}
`

const fewTests = `package p

import "testing"

func TestBoxes(t *testing.T) {
	b := box[int]{all: []int{1}}
	if clear(&b, "", ""); b.all != nil || b.many(1, 2, 3) != 2 || each(1, 2, 3) != 2 {
		t.Fail()
	}
}

func TestLeast(t *testing.T) {
	if least(2, 1) != 1 || loud("") != "A" {
		t.Fail()
	}
}

func TestPanics(t *testing.T) {
	done := make(chan int)
	go func() { done <- panics(nil) }()
	if <-done != 3 {
		t.Fail()
	}
}
`

// TestTryMutants: in one program all mutants are tried as if each were built alone. One that
// does not compile is stillborn, and is neither caught nor a survivor.
func TestTryMutants(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "p/p.go": few, "p/p_test.go": fewTests} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	made, err := generate(root, []string{"p"})
	if err != nil {
		t.Fatal(err)
	}
	together, err := newTogether()
	if err != nil {
		t.Fatal(err)
	}
	defer together.remove()
	if err := together.control(t.Context(), root, made); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var results []outcome
	for _, m := range made {
		by, err := together.try(t.Context(), root, m)
		results = append(results, outcome{m, by, err})
		got[strings.TrimPrefix(m.name, "p.go ")] = strings.TrimPrefix(outcome{m, by, err}.words(), "./p: ")
	}
	want := map[string]string{
		"most: most = 3: 3 is 4":                        "TestPanics",
		"box.many: return len(more): returns 0":         "TestBoxes",
		"each: n++: removed":                            "TestBoxes",
		"each: return n: returns 0":                     "TestBoxes",
		"clear: b.all = nil: removed":                   "TestBoxes",
		"least: a < b: always":                          "TestLeast",
		"least: a < b: never":                           "NOTHING",
		"least: a < b: < is <=":                         "NOTHING",
		"least: return a: returns 0":                    "NOTHING",
		"least: return b: returns 0":                    "TestLeast",
		`loud: return strings.ToUpper("a"): returns ""`: "TestLeast",
		"unused: a = b: removed":                        "stillborn: it does not compile",
		"unused: return a: returns 0":                   "NOTHING",
		"hangs: n > 0: never":                           "NOTHING",
		"hangs: n > 0: negated":                         "NOTHING",
		"hangs: n > 0: > is >=":                         "NOTHING",
		"hangs: n > 0: 0 is 1":                          "NOTHING",
		"hangs: n--: removed":                           "NOTHING",
		"panics: n == nil: always":                      "NOTHING",
		"panics: n == nil: never":                       "they panic",
		"panics: return most: returns 0":                "TestPanics",
		"panics: return *n: returns 0":                  "NOTHING",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	s := sumUp(results, map[string]map[string]string{"p": {"p.go least: a < b: < is <=": "both are the least"}})
	if want := "22 mutants: 10 caught, 1 stillborn, 1 known survivors, 10 others that nothing caught; the kill rate is 47.6 %"; s.String() != want {
		t.Errorf("%s, want %s", s, want)
	}
	for _, name := range []string{"p.go least: a < b: never", "p.go least: return a: returns 0"} {
		if err := s.err(false); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("nothing catches %q", name)) {
			t.Errorf("%s is not told: %v", name, err)
		}
	}
}

// TestReached: of the tests only those are run that reach a mutant.
func TestReached(t *testing.T) {
	root := t.TempDir()
	text := "package p\n\nfunc f(a int) int {\n\tif a > 0 {\n\t\treturn 5\n\t}\n\tg := func() int { return 7 }\n\tswitch {\n\tcase a < -1:\n\t\treturn 9\n\t}\n\treturn g()\n}\n"
	if err := errors.Join(os.Mkdir(filepath.Join(root, "p"), 0o755), os.WriteFile(filepath.Join(root, "p/p.go"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := &reach{root: root, pkg: "p", names: []string{"TestA", "TestB", "TestC"}, took: map[string]time.Duration{"TestA": 1, "TestB": 2, "TestC": 4}, blocks: map[string]*block{}}
	profile := func(count ...int) string {
		out := "mode: set\n"
		for i, place := range []string{"3.19,4.11", "4.11,6.3", "7.2,8.9", "7.18,7.29", "9.14,10.11", "12.2,12.12"} {
			out += fmt.Sprintf("example.com/m/p/p.go:%s 1 %d\n", place, count[i])
		}
		return out
	}
	r.note("TestA", profile(1, 1, 0, 0, 0, 0))
	r.note("TestB", profile(1, 0, 1, 0, 1, 0))
	r.note("TestC", profile(1, 0, 1, 1, 0, 1))
	for at, want := range map[string]string{"a > 0": "TestA TestB TestC 7ns", "5": "TestA 1ns", "7": "TestC 4ns", "g :=": "TestB TestC 6ns", "9": "TestB 2ns", "a < -1": "TestA TestB TestC 7ns"} {
		names, took, err := r.tests(mutation{at: strings.Index(text, at), edits: []edit{{file: "p/p.go"}}})
		if got := strings.Join(names, " ") + " " + took.String(); err != nil || got != want {
			t.Errorf("%q is reached by %s, want %s (%v)", at, got, want, err)
		}
	}
}

// TestSum: what is an error.
func TestSum(t *testing.T) {
	known := map[string]map[string]string{"p": {"listed": "why"}}
	result := func(name, by string, err error) outcome {
		return outcome{mutation{name: name, tests: "./p"}, by, err}
	}
	for name, tc := range map[string]struct {
		results []outcome
		only    bool
		want    string
	}{
		"all are caught":                  {results: []outcome{result("a", "TestA", nil)}},
		"stillborn":                       {results: []outcome{result("a", "TestA", nil), result("b", "", fmt.Errorf("b: %w", errStillborn))}},
		"not tried":                       {results: []outcome{result("a", "TestA", nil), result("b", "", errors.New("no disk"))}, want: "no disk"},
		"a survivor":                      {results: []outcome{result("a", "", nil)}, only: true, want: `nothing catches "a"`},
		"a known one is caught":           {results: []outcome{result("listed", "TestA", nil)}, want: `"listed" is caught`},
		"too many are known":              {results: []outcome{result("a", "TestA", nil), result("listed", "", nil)}, want: "50.0 %, less than 95 %"},
		"no rate is asked of a few alone": {results: []outcome{result("listed", "", nil)}, only: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := sumUp(tc.results, known).err(!tc.only)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

package results

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// of makes samples of an invocation, a second apart.
func of(in string, values ...float64) []Sample {
	var out []Sample
	for i, v := range values {
		out = append(out, Sample{Value: v, At: noon.Add(time.Duration(i) * time.Second), Load: 0.5, In: in})
	}
	return out
}

// file is one that an invocation measured.
func file(in string, i Invocation, series ...Series) File {
	return File{Invocations: map[string]Invocation{in: i}, Series: series}
}

func single(in string, values ...float64) Series {
	return Series{Name: "attach.single", Unit: Millis, Value: Median, Samples: of(in, values...)}
}

func violations(mode, in string, values ...float64) Series {
	return Series{Name: SafetyViolations + "." + mode, Unit: Count, Value: Sum, Samples: of(in, values...)}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	want := file("t1", Invocation{Commit: "c", Dirty: true, Machine: "m", Settings: map[string]string{"profile": "stock"}}, single("t1", 1, 2.25))
	want.Series[0].Samples = append(want.Series[0].Samples, Sample{At: noon, In: "t1", Failed: "a \"reason\"\nin two lines"})
	path, err := Save(dir, "2cpu", time.Date(2026, 1, 2, 23, 0, 0, 0, time.UTC), want)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "2026-01-02-2cpu.json" {
		t.Errorf("written to %s", path)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatHasNoSampleIsNotSaved(t *testing.T) {
	path, err := Save(t.TempDir(), "x", noon, file("t1", Invocation{Commit: "c"}, single("t1", 1), Series{Name: "none", Unit: Millis, Value: Median}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || len(got.Series) != 1 {
		t.Errorf("%+v, %v", got.Series, err)
	}
}

// TestEditsAreDetected: every change of what counts is seen.
func TestEditsAreDetected(t *testing.T) {
	path, err := Save(t.TempDir(), "x", noon, file("t1", Invocation{Commit: "abc", Dirty: true, Machine: "m"}, single("t1", 700, 800), violations(ModeNode, "t1", 1)))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, fresh string }{
		{"a value", `"value":700`, `"value":500`},
		{"the dirty flag", `"dirty": true`, `"dirty": false`},
		{"the commit", `"commit": "abc"`, `"commit": "abd"`},
		{"how the value follows", `"value": "median"`, `"value": "least"`},
		{"a violation", `"value":1,`, `"value":0,`},
		{"a name", `"attach.single"`, `"attach.other"`},
		{"the digest", `"digest": "sha256:`, `"digest": "sha256:0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			edited := strings.Replace(string(whole), c.old, c.fresh, 1)
			if edited == string(whole) {
				t.Fatalf("%s is not in the file:\n%s", c.old, whole)
			}
			if _, err := decode([]byte(edited)); !errors.Is(err, ErrEdited) {
				t.Errorf("read with %v", err)
			}
		})
	}
	t.Run("a sample is left out", func(t *testing.T) {
		lines := strings.SplitAfter(string(whole), "\n")
		var kept []string
		for _, line := range lines {
			if !strings.Contains(line, `"value":700`) {
				kept = append(kept, line)
			}
		}
		if _, err := decode([]byte(strings.Join(kept, ""))); !errors.Is(err, ErrEdited) {
			t.Errorf("read with %v", err)
		}
	})
	if _, err := decode(whole); err != nil {
		t.Errorf("the file as it was written: %v", err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"schema 1", `[{"name":"attach.single","runs":3}]`},
		{"schema 3", `{"schema":3,"digest":"","invocations":{},"series":[]}`},
		{"an unknown field", `{"schema":2,"digest":"","invocations":{},"series":[],"note":"x"}`},
	} {
		if _, err := decode([]byte(c.text)); err == nil {
			t.Errorf("%s is read", c.name)
		}
	}
	orphan, err := encode(File{Invocations: map[string]Invocation{}, Series: []Series{single("t9", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(orphan); err == nil {
		t.Error("a sample of no invocation is read")
	}
}

func TestMerge(t *testing.T) {
	clean := Invocation{Commit: "c1", Machine: "m"}
	for _, c := range []struct {
		name  string
		first Invocation
		then  Invocation
		want  int
	}{
		{"the same code adds up", clean, clean, 3},
		{"another commit replaces", clean, Invocation{Commit: "c2", Machine: "m"}, 1},
		{"another machine replaces", clean, Invocation{Commit: "c1", Machine: "n"}, 1},
		{"other settings replace", clean, Invocation{Commit: "c1", Machine: "m", Settings: map[string]string{"profile": "fast"}}, 1},
		{"code that is not known replaces", Invocation{Commit: "c1", Machine: "m", Dirty: true}, Invocation{Commit: "c1", Machine: "m", Dirty: true}, 1},
		{"another fsync does not matter", clean, Invocation{Commit: "c1", Machine: "m", FsyncMillis: 3}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Merge(file("t1", c.first, single("t1", 1, 2)), file("t2", c.then, single("t2", 3)))
			if n := len(got.Series[0].Samples); n != c.want {
				t.Errorf("%d samples, want %d", n, c.want)
			}
			if _, kept := got.Invocations["t1"]; kept != (c.want == 3) {
				t.Errorf("invocations %v", got.Invocations)
			}
		})
	}
}

// TestAViolationStays: nothing that is measured later takes it away.
func TestAViolationStays(t *testing.T) {
	all := File{}
	for _, f := range []File{
		file("t1", Invocation{Commit: "c1"}, violations(ModeController, "t1", 0, 1, 0)),
		file("t2", Invocation{Commit: "c2", Dirty: true}, violations(ModeController, "t2", 0, 0)),
		file("t3", Invocation{Commit: "c2"}, violations(ModeNode, "t3", 0)),
	} {
		all = Merge(all, f)
	}
	want := map[string]Summary{
		SafetyViolations + "." + ModeController: {Runs: 5, Value: 1, Commits: []string{"c1", "c2-dirty"}},
		SafetyViolations + "." + ModeNode:       {Runs: 1, Commits: []string{"c2"}},
		SafetyViolations:                        {Runs: 6, Value: 1, Commits: []string{"c1", "c2-dirty", "c2"}},
	}
	for _, s := range all.Summaries() {
		w := want[s.Name]
		if s.Runs != w.Runs || s.Value != w.Value || !cmp.Equal(s.Commits, w.Commits) {
			t.Errorf("%s: %d runs, value %v, commits %v; want %+v", s.Name, s.Runs, s.Value, s.Commits, w)
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("not told of: %v", want)
	}
	if KnownMisses(nil).Problems(all.Summaries()) == nil {
		t.Error("a violation is no problem")
	}
}

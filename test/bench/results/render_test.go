package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRender(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte("head\n"+renderBegin+"\nold\n"+renderEnd+"\ntail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	older := file("2026-01-01T00:00:00Z", Invocation{Commit: "bbbbbbbbbbbb", Machine: "m"}, single("2026-01-01T00:00:00Z", 9),
		violations(ModeNode, "2026-01-01T00:00:00Z", 0, 0))
	newer := file("2026-01-02T00:00:00Z", Invocation{Commit: "cccccccccccc", Dirty: true, Machine: "m", FsyncMillis: 1.5, Settings: map[string]string{"profile": "stock", "hosts": "3"}},
		single("2026-01-02T00:00:00Z", slicesOf(700, 5)...), violations(ModeNode, "2026-01-02T00:00:00Z", 1))
	var files []string
	for day, f := range []File{older, newer} {
		path, err := Save(dir, "x", noon.AddDate(0, 0, day), f)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	if err := Render(page, files, KnownMisses{"attach.single": "it is slow"}); err != nil {
		t.Fatal(err)
	}
	want := "head\n" + renderBegin + "\nFrom `bench/results/2026-01-02-x.json`, `bench/results/2026-01-03-x.json`, measured by\n\n" +
		"* 2026-01-01T00:00:00Z: commit bbbbbbbbbbbb, m\n" +
		"* 2026-01-02T00:00:00Z: commit cccccccccccc-dirty, m, hosts 3, profile stock, an fsync takes 1.5 ms\n\n" + age + "\n\n" +
		"| Name | Runs | p50 | p99 | Value | Target | Verdict | Measured | Commit |\n|---|---|---|---|---|---|---|---|---|\n" +
		"| `attach.single` | 5 | 700 | 700 | 700 ms | <= 600 | missed as known | 2026-01-02 | ccccccc-dirty |\n" +
		"| `safety.violations.node` | 3 |  |  | 1 count | <= 0 | MISSED | 2026-01-02 | bbbbbbb, ccccccc-dirty |\n" +
		"| `safety.violations` | 3 |  |  | 1 count | <= 0 | MISSED | 2026-01-02 | bbbbbbb, ccccccc-dirty |\n" +
		"\nKnown miss, `attach.single`: it is slow\n" +
		renderEnd + "\ntail\n"
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if err := Render(files[0], files, nil); err == nil {
		t.Error("a page without the marks is no error")
	}
}

func TestRenderOfNothing(t *testing.T) {
	got, err := Page([]byte(renderBegin+"\nold\n"+renderEnd), nil, nil)
	if err != nil || strings.Contains(string(got), "old") || !strings.Contains(string(got), "None") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	f := file("t1", Invocation{Commit: "c"}, single("t1", slicesOf(700.5, 5)...), Series{Name: "provision", Unit: Millis, Value: Median, Samples: of("t1", 1, 2)})
	if err := Print(&out, f.Summaries(), nil); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"name           runs  p50    p99    value     target  verdict  \n" +
		"attach.single  5     700.5  700.5  700.5 ms  <= 600  MISSED   \n" +
		"provision      2     1      2      1 ms                       \n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

package results

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// The marks in a page between which the results stand.
const (
	renderBegin = "<!-- begin results -->"
	renderEnd   = "<!-- end results -->"
)

// age stands above the table. How many commits are since is not there: that would be
// wrong with the next one.
const age = "**Each row tells of the commit in its last column, and not of this checkout:** what it measures may have changed since. " +
	"`go run ./test/bench --stale` says of each row how many commits have changed it."

// Files are the files of results in a directory, the oldest first.
func Files(dir string) ([]string, error) {
	out, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list the results: %w", err)
	}
	slices.Sort(out)
	return out, nil
}

// LoadAll merges files, the oldest first.
func LoadAll(files []string) (File, error) {
	var all File
	for _, path := range files {
		f, err := Load(path)
		if err != nil {
			return File{}, err
		}
		all = Merge(all, f)
	}
	return all, nil
}

// Render writes the results of the files into a page, in the place of those that
// stood there. The page has to hold the two marks.
func Render(page string, files []string, known KnownMisses) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("write the results into a page: %w", err)
	}
	out, err := Page(text, files, known)
	if err != nil {
		return fmt.Errorf("write the results into %s: %w", page, err)
	}
	if err := os.WriteFile(page, out, 0o644); err != nil {
		return fmt.Errorf("write the results into a page: %w", err)
	}
	return nil
}

// Page is the text of a page with the results of the files between its marks.
func Page(text []byte, files []string, known KnownMisses) ([]byte, error) {
	all, err := LoadAll(files)
	if err != nil {
		return nil, err
	}
	head, rest, found := bytes.Cut(text, []byte(renderBegin))
	_, tail, ended := bytes.Cut(rest, []byte(renderEnd))
	if !found || !ended {
		return nil, fmt.Errorf("it lacks %q or %q", renderBegin, renderEnd)
	}
	return bytes.Join([][]byte{head, []byte(renderBegin + "\n" + markdown(files, all, known)), append([]byte(renderEnd), tail...)}, nil), nil
}

// markdown is what the results were measured on, and their table.
func markdown(files []string, all File, known KnownMisses) string {
	if len(files) == 0 {
		return "None: nothing has been measured since the results keep their samples.\n"
	}
	var out strings.Builder
	var names []string
	for _, file := range files {
		names = append(names, "`bench/results/"+filepath.Base(file)+"`")
	}
	fmt.Fprintf(&out, "From %s, measured by\n\n", strings.Join(names, ", "))
	for _, in := range slices.Sorted(maps.Keys(all.Invocations)) {
		fmt.Fprintf(&out, "* %s: %s\n", in, describe(all.Invocations[in]))
	}
	out.WriteString("\n" + age + "\n\n| Name | Runs | p50 | p99 | Value | Target | Verdict | Measured | Commit |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range all.Summaries() {
		fmt.Fprintf(&out, "| `%s` | %d | %s | %s | %s | %s | %s | %s | %s |\n", s.Name, s.Runs, s.percentile(s.P50), s.percentile(s.P99), s.value(),
			TargetOf(s.Name), known.Verdict(s), s.days(), strings.Join(s.shortCommits(), ", "))
	}
	out.WriteString(growthTable(all.Growth()))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(&out, "\nKnown miss, `%s`: %s\n", name, known[name])
	}
	return out.String()
}

// describe says of what and where an invocation was.
func describe(i Invocation) string {
	out := []string{"commit " + i.Name(), i.Machine}
	for _, key := range slices.Sorted(maps.Keys(i.Settings)) {
		out = append(out, key+" "+i.Settings[key])
	}
	if i.FsyncMillis > 0 {
		out = append(out, "an fsync takes "+number(i.FsyncMillis)+" ms")
	}
	return strings.Join(out, ", ")
}

// percentile is empty for what has no distribution.
func (s Summary) percentile(x float64) string {
	if s.Kind == Sum || s.Kind == Ratio || s.Runs == 0 {
		return ""
	}
	return number(x)
}

func (s Summary) value() string {
	if s.Runs == 0 {
		return ""
	}
	return number(s.Value) + " " + s.Unit
}

func (s Summary) days() string {
	first, last := s.First.UTC().Format(time.DateOnly), s.Last.UTC().Format(time.DateOnly)
	if first == last {
		return first
	}
	return first + " to " + last
}

// shortCommits are the commits in seven digits. -dirty stays.
func (s Summary) shortCommits() []string {
	var out []string
	for _, c := range s.Commits {
		commit, dirty, _ := strings.Cut(c, "-")
		short := commit[:min(len(commit), 7)]
		if dirty != "" {
			short += "-" + dirty
		}
		out = append(out, short)
	}
	return out
}

// Print prints the results beside their targets.
func Print(out io.Writer, all []Summary, known KnownMisses) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\truns\tp50\tp99\tvalue\ttarget\tverdict\t")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n",
			s.Name, s.Runs, s.percentile(s.P50), s.percentile(s.P99), s.value(), TargetOf(s.Name), known.Verdict(s))
	}
	return w.Flush()
}

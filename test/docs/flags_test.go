package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// option is a flag as a program tells of it.
type option struct{ name, short, kind, preset, words string }

// A line of pflag's usage: flag, kind, words, default.
var (
	optionLine = regexp.MustCompile(`^ {2,6}(?:-(\w), )?--([\w-]+)(?: (\S+))? {2,}(.*)$`)
	presetTail = regexp.MustCompile(`^(.*?) ?\(default (.*)\)$`)
)

// parseOptions reads the flags in the output of --help.
func parseOptions(help string) []option {
	var out []option
	for line := range strings.Lines(help) {
		m := optionLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || m[2] == "help" {
			continue
		}
		o := option{short: m[1], name: m[2], kind: m[3], words: m[4]}
		if o.kind == "" {
			o.kind = "bool"
		}
		if p := presetTail.FindStringSubmatch(o.words); p != nil {
			o.words, o.preset = p[1], strings.Trim(p[2], `"`)
		}
		if o.kind == "bool" && o.preset == "" {
			o.preset = "false"
		}
		out = append(out, o)
	}
	return out
}

func TestParseOptions(t *testing.T) {
	help := "Usage of x:\n" +
		"      --bare                     leave it out\n" +
		"      --beat                     write (node) (default true)\n" +
		"      --kube-api-qps float32     requests per second, on average (default 100)\n" +
		"      --name string              name of the driver (default \"csi\")\n" +
		"  -v, --v int                    how much to log\n"
	want := []option{
		{name: "bare", kind: "bool", preset: "false", words: "leave it out"},
		{name: "beat", kind: "bool", preset: "true", words: "write (node)"},
		{name: "kube-api-qps", kind: "float32", preset: "100", words: "requests per second, on average"},
		{name: "name", kind: "string", preset: "csi", words: "name of the driver"},
		{name: "v", short: "v", kind: "int", words: "how much to log"},
	}
	if got := parseOptions(help); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// binaries builds the programs, once, and returns where they are. The place
// lasts, so that nothing is linked again unless it has changed.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(path("bin", "docs"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator))
	for _, place := range programDirs {
		build.Args = append(build.Args, "./"+place+"/...")
	}
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, out)
	}
	return dir, nil
})

// help is what a program prints with --help.
func help(t *testing.T, program string, args ...string) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, program), append(args, "--help")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// programDirs hold the programs: of the product, of the reference vendor and
// emulator, and of the test bed.
var programDirs = []string{"cmd", "reference/cmd", "test/cmd"}

// programs are the names of all programs.
func programs(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range programDirs {
		mains, err := filepath.Glob(path(dir, "*", "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mains {
			out = append(out, filepath.Base(filepath.Dir(m)))
		}
	}
	return out
}

// options are the flags of a program.
func options(t *testing.T, program string) []option {
	t.Helper()
	return parseOptions(help(t, program))
}

// commands are the programs with subcommands, whose pages list those.
var commands = []string{"moor-dev", "moor-host", "moorctl"}

// TestFlags holds the flags table of every component page to the program.
func TestFlags(t *testing.T) {
	for _, program := range programs(t) {
		if slices.Contains(commands, program) {
			continue
		}
		t.Run(program, func(t *testing.T) {
			flags := options(t, program)
			if len(flags) == 0 {
				t.Fatal("no flags found in the output of --help")
			}
			page := path("docs", "components", program+".md")
			if _, err := os.Stat(page); err != nil {
				t.Fatalf("write a page for %s, and a line in docs/components/README.md: %v", program, err)
			}
			checkBlock(t, page, "flags "+program, flagsTable(flags))
		})
	}
}

func flagsTable(flags []option) string {
	var b strings.Builder
	b.WriteString("| Flag | Type | Default | Meaning |\n|---|---|---|---|\n")
	for _, o := range flags {
		name := "--" + o.name
		if o.short != "" {
			name = "-" + o.short + "`, `" + name
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, o.kind, code(o.preset), cell(o.words))
	}
	return b.String()
}

// subcommand is a line of cobra's list of commands.
var subcommand = regexp.MustCompile(`(?m)^  ([a-z-]+) +([A-Z].*)$`)

// TestCommands holds the pages of programs with subcommands to these.
func TestCommands(t *testing.T) {
	for _, program := range commands {
		t.Run(program, func(t *testing.T) {
			checkBlock(t, path("docs", "components", program+".md"), "commands "+program, commandsTable(t, program))
		})
	}
}

func commandsTable(t *testing.T, program string) string {
	return "| Command | What it does | Flags |\n|---|---|---|\n" + commandRows(t, program)
}

// commandRows are a command's subcommands, and theirs. What all commands below
// a group take stands in the group's row.
func commandRows(t *testing.T, program string, group ...string) string {
	_, list, _ := strings.Cut(help(t, program, group...), "Available Commands:")
	list, _, _ = strings.Cut(list, "Flags:")
	var b strings.Builder
	for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
		if m[1] == "help" || m[1] == "completion" {
			continue
		}
		words := append(slices.Clone(group), m[1])
		text := help(t, program, words...)
		if len(group) > 0 {
			text, _, _ = strings.Cut(text, "Global Flags:")
		}
		var flags []string
		for _, o := range parseOptions(text) {
			words := fmt.Sprintf("`--%s` (%s", o.name, o.kind)
			if o.preset != "" {
				words += ", default `" + o.preset + "`"
			}
			flags = append(flags, words+"): "+cell(o.words))
		}
		fmt.Fprintf(&b, "| `%s %s` | %s | %s |\n", program, strings.Join(words, " "), cell(m[2]), strings.Join(flags, "; "))
		if strings.Contains(text, "Available Commands:") {
			b.WriteString(commandRows(t, program, words...))
		}
	}
	return b.String()
}

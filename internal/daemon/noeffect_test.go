package daemon

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
)

// TestNoEffect: such a flag is accepted in each spelling, told of once, and not listed.
func TestNoEffect(t *testing.T) {
	fs := pflag.NewFlagSet("tried", pflag.ContinueOnError)
	name := fs.String("name", "", "a name")
	NoEffect(fs, "there is none here", "enable-http2", "pprof-bind-address", "name", "never-given")
	bindForeign(fs)
	if err := fs.Parse([]string{"--enable-http2", "--pprof-bind-address=:1", "--pprof-bind-address=:2", "--name=x", "--log-json-split-stream=true"}); err != nil {
		t.Fatal(err)
	}
	if *name != "x" {
		t.Errorf("a flag of the program's own is %q", *name)
	}
	var lines []string
	logNoEffect(fs, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	all := strings.Join(lines, "\n")
	for _, want := range []string{`"flag"="--enable-http2" "value"="true" "why"="there is none here"`, `"flag"="--pprof-bind-address" "value"=":2"`, `"flag"="--log-json-split-stream" "value"="true"`} {
		if strings.Count(all, want) != 1 {
			t.Errorf("not told once: %s\n%s", want, all)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines:\n%s", len(lines), all)
	}
	if usage := fs.FlagUsages(); !strings.Contains(usage, "--name") || strings.Contains(usage, "http2") {
		t.Errorf("the list of flags is\n%s", usage)
	}
}

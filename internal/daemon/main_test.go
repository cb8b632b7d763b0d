package daemon

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestMainsExitCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		fails  error
		code   int
		ran    bool
		out    string
		errors string
	}{
		"runs":              {args: []string{"--name=x"}, ran: true},
		"version":           {args: []string{"--name=x", "--version"}, out: "tried version "},
		"help":              {args: []string{"--help"}, errors: "--name string"},
		"flag not known":    {args: []string{"--nome=x"}, code: 2, errors: "tried: unknown flag: --nome; --help lists the flags\n"},
		"value not wanted":  {args: []string{"--version=perhaps"}, code: 2, errors: "tried: invalid argument"},
		"run returns error": {args: []string{"--name=x"}, fails: errors.New("no cluster"), code: 1, ran: true, errors: "tried: no cluster\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			var value string
			ran := false
			p := program{name: "tried", out: &out, errors: &errs}
			p.bind = func(fs *pflag.FlagSet) { fs.StringVar(&value, "name", "", "a name") }
			p.run = func(context.Context) error {
				if ran = true; value != "x" {
					t.Errorf("run before the flags were read: name is %q", value)
				}
				return tc.fails
			}
			if code := p.start(t.Context(), tc.args); code != tc.code || ran != tc.ran {
				t.Errorf("exit code %d, ran %t; want %d, %t", code, ran, tc.code, tc.ran)
			}
			if !strings.HasPrefix(out.String(), tc.out) || (tc.out == "") != (out.Len() == 0) {
				t.Errorf("printed %q, want %q", out.String(), tc.out)
			}
			if !strings.Contains(errs.String(), tc.errors) || (tc.errors == "") != (errs.Len() == 0) {
				t.Errorf("printed the error %q, want %q", errs.String(), tc.errors)
			}
		})
	}
}

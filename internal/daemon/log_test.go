package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/moor-storage/moor/internal/freeport"
)

// TestLogFormat: a line of the log is text or JSON, on stderr; and what contradicts is refused.
func TestLogFormat(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		json    bool
		details bool
		refused string
	}{
		"text":                  {},
		"verbose":               {args: []string{"-v=2"}, details: true},
		"by file":               {args: []string{"--vmodule=log_test=2"}, details: true},
		"by another file":       {args: []string{"--vmodule=other=2"}},
		"json":                  {args: []string{"--logging-format=json"}, json: true},
		"unknown format":        {args: []string{"--logging-format=xml"}, refused: "xml"},
		"by file in json":       {args: []string{"--logging-format=json", "--vmodule=a=2"}, refused: "vmodule"},
		"verbosity of no sense": {args: []string{"--vmodule=a"}, refused: "vmodule"},
	} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			t.Cleanup(func() { unset(t) })
			out, err := logged(t, c.args)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v is not refused for %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(out, "\n")
			if got := json.Valid([]byte(first)); got != c.json || !strings.Contains(first, "attached") || !strings.Contains(first, "v-1") {
				t.Errorf("JSON is wanted: %t; the line is %s", c.json, first)
			}
			if got := strings.Contains(out, "detail"); got != c.details {
				t.Errorf("details %t, want %t, in %s", got, c.details, out)
			}
		})
	}
}

// unset takes back what this or an earlier test has set for the process.
func unset(t *testing.T) {
	t.Helper()
	if err := logsapi.ResetForTest(nil); err != nil {
		t.Error(err)
	}
}

// logged is what two lines with those flags put on stderr.
func logged(t *testing.T, args []string) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = w
	defer func() { os.Stderr = was }()
	var flags LogFlags
	fs := pflag.NewFlagSet("tried", pflag.ContinueOnError)
	flags.Bind(fs)
	err = fs.Parse(args)
	if err == nil {
		logger, failed := flags.Logger()
		if err = failed; err == nil {
			logger.Info("attached", "volume", "v-1")
			logger.V(2).Info("detail")
		}
	}
	w.Close()
	out, readErr := io.ReadAll(r)
	return string(out), errors.Join(err, readErr)
}

// TestProfiles: they are there where they are asked for, and nowhere else.
func TestProfiles(t *testing.T) {
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		address string
		there   bool
	}{"off": {"", false}, "0": {"0", false}, "on": {address, true}} {
		t.Run(name, func(t *testing.T) {
			if err := profile(t.Context(), c.address); err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/debug/pprof/heap", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if (err == nil) != c.there {
				t.Fatalf("an answer: %v, wanted %t", err, c.there)
			}
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if head, err := io.ReadAll(resp.Body); err != nil || !bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
				t.Errorf("no profile: %v, %d bytes, %s", err, len(head), resp.Status)
			}
		})
	}
	if err := profile(t.Context(), "nowhere:x"); err == nil || !strings.Contains(err.Error(), "--pprof-bind-address") {
		t.Errorf("%v", err)
	}
}

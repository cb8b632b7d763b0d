//go:build root

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moor-storage/moor/cmd/moorctl/csictl"
)

// step is a command of the walk and what it prints.
type step struct{ command, says string }

// walk reads the console session between the page's markers.
func walk(t *testing.T, page string) []step {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), "<!-- begin walk -->\n```console\n")
	text, _, ended := strings.Cut(text, "```\n<!-- end walk -->")
	if !found || !ended {
		t.Fatalf("%s has no walk", page)
	}
	var out []step
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "$ moorctl csi "); ok {
			out = append(out, step{command: strings.TrimSpace(command)})
		} else {
			out[len(out)-1].says += line
		}
	}
	return out
}

// TestWalk runs the walk of moorctl's page to the letter, but for the place of
// the socket and of the files.
func TestWalk(t *testing.T) {
	dir, err := os.MkdirTemp("", "lv") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	run(t, "--mode=driver", "--name=csi-hostpath", "--node-id=CSINode", "--endpoint="+endpoint, "--target-dir="+filepath.Join(dir, "volumes"),
		"--device-dir="+filepath.Join(dir, "devices"), "--metrics-bind-address=0")
	eventually(t, "the driver serves", func() bool { _, err := moorctl(t, "identity probe --endpoint "+endpoint); return err == nil })
	mnt := filepath.Join(dir, "mnt")
	if err := os.MkdirAll(filepath.Join(mnt, "staging"), 0o755); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("tcp://127.0.0.1:10000", endpoint, "/mnt/", mnt+"/")
	steps := walk(t, "../../../docs/components/moorctl.md")
	if len(steps) < 10 {
		t.Fatalf("the walk has only %d steps", len(steps))
	}
	for _, s := range steps {
		out, err := moorctl(t, here.Replace(s.command))
		if err != nil {
			if want := strings.TrimSpace(s.says); !strings.HasPrefix(want, "rpc error: ") || !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("%s: %v, want %q", s.command, err, want)
			}
			continue
		}
		if out != s.says {
			t.Fatalf("%s printed %q, want %q", s.command, out, s.says)
		}
		if strings.HasPrefix(s.command, "node publish") {
			wantDevice(t, filepath.Join(mnt, "hostpath"))
		}
	}
	if _, err := os.Lstat(filepath.Join(mnt, "hostpath")); !os.IsNotExist(err) {
		t.Fatalf("the target path is there after the walk: %v", err)
	}
}

// moorctl runs "moorctl csi" with the words and returns what it prints.
func moorctl(t *testing.T, words string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := csictl.Command()
	cmd.SetArgs(strings.Fields(words))
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func wantDevice(t *testing.T, path string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil || fi.Mode()&os.ModeDevice == 0 {
		t.Fatalf("%s is no device: %v, %v", path, fi, err)
	}
}

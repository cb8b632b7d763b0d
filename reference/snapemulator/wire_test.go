package snapemulator

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moor-storage/moor/reference/writelog"
)

// pipe is a connection whose requests are all there and whose answers are kept.
type pipe struct {
	io.Reader
	bytes.Buffer
}

func (p *pipe) Read(b []byte) (int, error) { return p.Reader.Read(b) }

// converseWith returns the answers of a fresh emulator to the bytes in.
func converseWith(t testing.TB, in string) string {
	dir, err := os.MkdirTemp("", "snapemu")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	e, err := New(Options{Name: "dpu-1", VFs: 1, Socket: filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := &pipe{Reader: strings.NewReader(in)}
	e.converse(context.Background(), p)
	return p.Buffer.String()
}

const (
	level   = `{"jsonrpc":"2.0","id":1,"method":"snap_log_level_set","params":{"level":1}}`
	levelOK = `{"jsonrpc":"2.0","id":1,"result":true}` + "\n"
	parse   = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}` + "\n"
	invalid = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}` + "\n"
)

func TestConverse(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"with a newline", level + "\n", levelOK},
		{"without a newline", level, levelOK},
		{"two in one", level + level, levelOK + levelOK},
		{"blanks between", "\n\n " + level + "\r\n\t" + level, levelOK + levelOK},
		{"half", level[:30], ""},
		{"one and a half", level + level[:30], levelOK},
		{"garbage ends the connection", "GET / HTTP/1.1\r\n" + level, parse},
		{"answers before garbage", level + "}" + level, levelOK + parse},
		{"scalar", "42\n" + level, invalid + levelOK},
		{"text", `"x"` + "\n" + level, invalid + levelOK},
		{"null", "null\n" + level, invalid + levelOK},
		{"batch", "[" + level + "]" + level, invalid + levelOK},
		{"nested too deep", strings.Repeat("[", 20000) + strings.Repeat("]", 20000), parse},
		{"huge", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", maxRequest) + `"}`, parse},
		{"boolean id", strings.Replace(level, `"id":1`, `"id":true`, 1), invalid},
		{"notification", strings.Replace(level, `"id":1,`, ``, 1) + level, levelOK},
		{"params null", `{"jsonrpc":"2.0","id":1,"method":"moor_clear","params":null}`, levelOK},
		{"params empty", `{"jsonrpc":"2.0","id":1,"method":"moor_clear","params":{}}`, levelOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := converseWith(t, tc.in); got != tc.want {
				t.Errorf("got %.200q\nwant %.200q", got, tc.want)
			}
		})
	}
}

// FuzzConverse: whatever comes in, what goes out is whole lines, each of them
// one answer of JSON-RPC 2.0.
func FuzzConverse(f *testing.F) {
	for _, s := range []string{
		level, level + level[:40], "[[", `{"jsonrpc":"2.0","id":1,"method":"nvme_subsystem_list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"nvme_subsystem_create","params":{"nqn":"nqn.a","nn":1e9}}`, "\x00", `{"id":{}}`,
		`{"jsonrpc":"2.0","id":-1.5e3,"method":"moor_state"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if strings.Contains(in, "inject") || strings.Contains(in, "filename") || strings.Contains(in, `\u`) {
			t.Skip("faults break the promise on purpose; files of the machine are not for a fuzzer")
		}
		out := converseWith(t, in)
		if out != "" && !strings.HasSuffix(out, "\n") {
			t.Fatalf("%q: an answer without its end: %q", in, out)
		}
		for line := range strings.Lines(out) {
			var a map[string]any
			if err := json.Unmarshal([]byte(line), &a); err != nil || a["jsonrpc"] != "2.0" || (a["error"] != nil) == (a["result"] != nil) {
				t.Fatalf("%q: answer %q (%v)", in, line, err)
			}
		}
	})
}

func TestRootsOfOthersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	node := filepath.Join(dir, "nvme0n1")
	if err := os.WriteFile(node, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Options{Name: "dpu-1", Socket: filepath.Join(t.TempDir(), "s"), DevRoot: dir})
	if err == nil || !strings.Contains(err.Error(), "nvme0n1") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(node); err != nil {
		t.Errorf("a foreign device file is gone: %v", err)
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []Options{
		{Name: ""},
		{Name: "a.b"},
		{Name: "A"},
		{Name: "-a"},
		{Name: strings.Repeat("a", writelog.MaxName+1)},
		{Name: "a", VFs: 128},
		{Name: "a", Socket: "/tmp/" + strings.Repeat("x", 110)},
	} {
		if e, err := New(o); err == nil {
			e.Close()
			t.Errorf("%+v is taken", o)
		}
	}
	_, err := New(Options{Name: "a", Socket: "/tmp/" + strings.Repeat("x", 110)})
	if err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("long socket path: %v", err)
	}
}

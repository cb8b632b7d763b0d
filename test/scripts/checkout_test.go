package scripts

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkout is a directory with the scripts under test, and programs that say in
// a file that they were called, and fail if FAIL matches the call.
type checkout struct{ dir string }

// pretend is such a program. What it is told to build (-o FILE) is one as well, and
// replaces what ran under that name, as go build does.
// If HANG matches the call, it starts a program and waits for it; with APART set,
// one in a process group of its own, as tests start their API servers.
const pretend = `#!/bin/bash
call="$(basename "$0") $*"
echo "$call" >>"$CALLS"
if [[ -n "${HANG:-}" && "$call" =~ $HANG ]]; then
	${APART:+setsid} sleep 1000 &
	echo $! >"$CALLS.hung"
	wait
fi
while [ $# -gt 0 ]; do
	if [ "$1" = -o ]; then mkdir -p "$(dirname "$2")" && cp "$0" "$2.$$" && mv "$2.$$" "$2"; fi
	shift
done
if [[ -n "${FAIL:-}" && "$call" =~ $FAIL ]]; then
	echo "${SAY:-}"
	exit 2
fi
`

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{dir: t.TempDir()}
	hack := filepath.Join("..", "..", "hack")
	for _, name := range []string{"steps.sh", "verify.sh"} {
		text, err := os.ReadFile(filepath.Join(hack, name))
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, "hack/"+name, string(text))
	}
	for _, name := range []string{"go", "protoc", "shellcheck"} {
		c.write(t, "programs/"+name, pretend)
	}
	c.write(t, "hack/apt/install.sh", "#!/bin/bash\n")
	c.write(t, "test/e2e/readme", "")
	c.write(t, "hack/kube/conformance/readme", "")
	return c
}

func (c *checkout) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // programs
		t.Fatal(err)
	}
}

// command is a script of the checkout with more of an environment. It dies with
// the test.
func (c *checkout) command(t *testing.T, env []string, argv ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(c.dir, argv[0]), argv[1:]...)
	cmd.Dir = c.dir
	path := "PATH=" + filepath.Join(c.dir, "programs") + ":" + os.Getenv("PATH")
	cmd.Env = append([]string{path, "HOME=" + c.dir, "CALLS=" + filepath.Join(c.dir, "calls")}, env...)
	return cmd
}

// run runs a script to its end.
func (c *checkout) run(t *testing.T, env []string, argv ...string) (output string, code int) {
	t.Helper()
	out, err := c.command(t, env, argv...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// calls are what the programs were called with, a line each.
func (c *checkout) calls(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// inOrder reports whether a text has lines that begin like this, in this order.
func inOrder(text string, want ...string) bool {
	for line := range strings.Lines(text) {
		if len(want) > 0 && strings.HasPrefix(line, want[0]) {
			want = want[1:]
		}
	}
	return len(want) == 0
}

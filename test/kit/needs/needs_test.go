package needs

import (
	"fmt"
	"testing"
)

// recorder is a test that notes how it ended.
type recorder struct {
	testing.TB
	end string
}

func (*recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.end = "skip: " + fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.end = "fail: " + fmt.Sprintf(format, args...)
}

func TestProgram(t *testing.T) {
	const missing = "no-such-program is not installed: add its package to hack/apt/packages.txt"
	for _, c := range []struct{ noSkip, program, end string }{
		{"", "no-such-program", "skip: " + missing},
		{"0", "no-such-program", "skip: " + missing},
		{"1", "no-such-program", "fail: " + missing},
		{"1", "go", ""},
	} {
		t.Setenv(NoSkip, c.noSkip)
		r := &recorder{TB: t}
		Program(r, c.program)
		if r.end != c.end {
			t.Errorf("%s=%s, %s: %q, want %q", NoSkip, c.noSkip, c.program, r.end, c.end)
		}
	}
}

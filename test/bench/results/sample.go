package results

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Measured is a sample of an invocation that was just taken, of what was so at a time.
func Measured(in string, at time.Time, value float64) Sample {
	return Sample{Value: Round(value), At: stamp(at), Load: load(), In: in}
}

// Failed is a run of an invocation that just failed.
func Failed(in string, err error) Sample {
	return Sample{At: stamp(time.Now()), Load: load(), In: in, Failed: fmt.Sprintf("%.300s", err)}
}

// stamp is a time as the files hold it.
func stamp(at time.Time) time.Time { return at.UTC().Truncate(time.Millisecond) }

// load is the load average of the last minute; 0 if the kernel does not say.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(text), " ")
	out, _ := strconv.ParseFloat(minute, 64)
	return out
}

// NewInvocation names a run of a program that measures, by when it began.
func NewInvocation() string { return time.Now().UTC().Format(time.RFC3339) }

// DefaultName is the name of a machine like this one; a host's own name belongs in
// no public file.
func DefaultName() string { return fmt.Sprintf("%dcpu", runtime.NumCPU()) }

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`)

// DescribeMachine says what the numbers are measured on.
func DescribeMachine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := modelName.FindSubmatch(text); m != nil {
			model = strings.TrimSpace(string(m[1]))
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d x %s, Linux %s", runtime.NumCPU(), model, strings.TrimSpace(string(kernel)))
}

package scripts

import (
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStepsOnBed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   []string
		code  int
		calls []string
		end   string
	}{
		{
			name: "passes", env: []string{"FOCUS=the main job"},
			calls: []string{"moor-dev up --kubelet-profile=fast --pods\n", "e2e.test ", "moor-dev down\n", "moor-dev leftovers\n"}, end: "all steps passed",
		},
		{
			name: "all of the default mode, the database apart", env: []string{"MODE=controller"},
			calls: []string{"moor-dev up --kubelet-profile=fast --pods\n", "e2e.test -test.timeout=0 -ginkgo.timeout=70m -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.v -ginkgo.label-filter=!database\n", "e2e.test -test.timeout=0 -ginkgo.timeout=70m -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.v -ginkgo.label-filter=database\n", "moor-dev down\n"}, end: "all steps passed",
		},
		{
			name: "sequences of faults", env: []string{"FOCUS=database", "SEQUENCES=5", "SEED=7"},
			calls: []string{"moor-dev up --kubelet-profile=fast --pods\n", "e2e.test -test.timeout=0 -ginkgo.timeout=70m -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.v -ginkgo.focus=database -sequences=5 -ginkgo.timeout=24h -seed=7\n", "moor-dev down\n"}, end: "all steps passed",
		},
		{
			name: "in the other mode", env: []string{"MODE=node"},
			calls: []string{"moor-dev up --kubelet-profile=fast --attach-mode=node\n", "e2e.test ", "moor-dev down\n"}, end: "all steps passed",
		},
		{
			name: "all of a mode", env: []string{"MODE=dpu-pods"},
			calls: []string{"moor-dev up --kubelet-profile=fast --dpu-pods\n", "e2e.test -test.timeout=0 -ginkgo.timeout=70m -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.v -ginkgo.label-filter=dpu-pods\n", "moor-dev down\n"}, end: "all steps passed",
		},
		{
			name: "all of a mode, one of which fails", env: []string{"MODE=dpu-pods", "FAIL=^e2e.test"}, code: 2,
			calls: []string{"moor-dev up", "e2e.test ", "moor-dev down\n"}, end: "e2e",
		},
		{name: "no such mode", env: []string{"MODE=both"}, code: 2, end: "e2e"},
		{
			name: "a spec fails", env: []string{"FOCUS=the main job", "FAIL=^e2e.test"}, code: 2,
			calls: []string{"moor-dev up", "e2e.test ", "moor-dev down\n", "moor-dev leftovers\n"}, end: "e2e",
		},
		{
			name: "the bed does not come up", env: []string{"FOCUS=the main job", "FAIL=moor-dev up"}, code: 2,
			calls: []string{"moor-dev up", "moor-dev down\n"}, end: "e2e",
		},
		{
			name: "the bed leaves something", env: []string{"FOCUS=the main job", "FAIL=moor-dev leftovers"}, code: 1,
			calls: []string{"moor-dev up", "e2e.test ", "moor-dev down\n", "moor-dev leftovers\n"}, end: "taking the test bed down",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCheckout(t)
			out, code := c.run(t, tt.env, "hack/steps.sh", "e2e")
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if calls := c.calls(t); !inOrder(calls, tt.calls...) {
				t.Errorf("calls %s, want among them %q", calls, tt.calls)
			}
			if lines := strings.Split(strings.TrimSpace(out), "\n"); !strings.HasSuffix(lines[len(lines)-1], tt.end) {
				t.Errorf("output %s, want an end of %q", out, tt.end)
			}
			if passed := strings.Contains(out, "all steps passed"); passed != (tt.code == 0) {
				t.Errorf("output %s of a run that ended with %d", out, code)
			}
		})
	}
}

// The times are what is said last, whatever a step says, and the logs of a bed that is up.
func TestStepsTellTimes(t *testing.T) {
	out, _ := newCheckout(t).run(t, []string{"FAIL=^e2e.test", "SAY=a line\n\n/root/is/a/path"}, "hack/steps.sh", "unit", "bed", "root")
	end := out[strings.LastIndex(out, "\n\n"):]
	for _, want := range []string{
		` ok +\d+ s  unit\n`, ` ok +\d+ s    the bed itself\n`, ` ok +\d+ s    bed up --pods\n`, ` ok +\d+ s    csi-sanity, block\n`,
		` FAILED +\d+ s    e2e, attach mode controller\n`, ` FAILED +\d+ s  bed\n`,
	} {
		if !regexp.MustCompile(want).MatchString(end) {
			t.Errorf("the end %s lacks %q", end, want)
		}
	}
	if strings.Contains(end, "root") {
		t.Error("a step after the one that failed was run")
	}
}

// A spec that fails once has failed, and a run of no spec at all has tested nothing.
// What failed is told after what the bed's processes said, which is long.
func TestStepsTellWhatFailed(t *testing.T) {
	for _, tt := range []struct {
		name, step, fail, say, want string
	}{
		{"a spec", "e2e", "^e2e.test", "a step\nSummarizing 1 Failure:\n  [FAIL] the main job\n\nRan 5 of 6 Specs\nFAIL!", "Summarizing 1 Failure:\n  [FAIL] the main job\n\nRan 5 of 6 Specs"},
		{"a test", "unit", "gotestsum", "a package\n=== Failed\n=== FAIL: pkg TestX\n\nDONE 5 tests, 1 failure", "=== Failed\n=== FAIL: pkg TestX\n\nDONE 5 tests, 1 failure"},
		{"a bed that does not come up", "sanity", "moor-dev up", "  1.0s  hub is up\nmoor-dev: process x has ended\n  the end of its log", "moor-dev: process x has ended\n  the end of its log"},
		{"nothing that says so", "e2e", "^e2e.test", "killed", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, code := newCheckout(t).run(t, []string{"FOCUS=the main job", "FAIL=" + tt.fail, "SAY=" + tt.say}, "hack/steps.sh", tt.step)
			if code == 0 {
				t.Errorf("it passed, with output %s", out)
			}
			_, end, found := strings.Cut(out, "\n--- what failed\n")
			said, _, _ := strings.Cut(end, "\n\n  ")
			if said != tt.want || found != (tt.want != "") {
				t.Errorf("the end of %s tells %q, want %q", out, said, tt.want)
			}
		})
	}
}

// Lanes run at the same time. One that fails ends the other, and what each of them
// said and took is told, that of the first one first.
func TestStepsInLanes(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		code int
		end  []string
	}{
		{"both pass", nil, 0, []string{` ok +\d+ s  root\n`, ` ok +\d+ s    e2e, attach mode node\n`, ` ok +\d+ s  bed\n`, ` ok +\d+ s  unit\n`, ` ok +\d+ s  api\n`, `all steps passed\n`}},
		{"the first fails", []string{"FAIL=^e2e.test", "HANG=-shuffle=7 .* ./\\.\\.\\.", "SEED=7"}, 2, []string{` FAILED +\d+ s  bed\n`, ` FAILED +\d+ s  unit, interrupted\n`}},
		{"the second fails", []string{"FAIL=-shuffle=7 .* ./\\.\\.\\.", "HANG=^e2e.test", "SEED=7"}, 1, []string{` FAILED +\d+ s  bed, interrupted\n`, ` FAILED +\d+ s  unit\n`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, code := newCheckout(t).run(t, tt.env, "hack/steps.sh", "root", "bed+unit,api")
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if strings.Count(out, "=== unit\n") != 1 || strings.Index(out, "=== bed\n") > strings.Index(out, "=== unit\n") {
				t.Errorf("the output is not that of the first lane and then that of the second: %s", out)
			}
			end := out[strings.LastIndex(out, "\n\n"):]
			for _, want := range tt.end {
				if at := regexp.MustCompile(want).FindStringIndex(end); at != nil {
					end = end[at[1]-1:]
				} else {
					t.Errorf("the end lacks %q, or has it too early: %s", want, out)
				}
			}
			if code != 0 && strings.Contains(out, "s  api") {
				t.Error("a step after the one that failed was run")
			}
		})
	}
}

// Whatever is asked for is measured, on each bed that it needs and once on each.
func TestStepsBench(t *testing.T) {
	const controller, node = "up --kubelet-profile=stock --vfs=64 --attach-mode=controller", "up --kubelet-profile=stock --vfs=64 --attach-mode=node"
	const epochs, pods = "up --kubelet-profile=stock --epochs", "up --kubelet-profile=stock --pods"
	const dpuPods = "up --kubelet-profile=stock --dpu-pods"
	kept := []string{"up --kubelet-profile=stock --vfs=64 --keep-functions", "--only=failover.snap_killed_with_state"}
	below := []string{
		"up --kubelet-profile=stock --attach-mode=controller --record-below", "--only=failover.recorded_below",
		"up --kubelet-profile=stock --attach-mode=node --record-below", "--only=failover.recorded_below",
	}
	for _, tt := range []struct {
		bench string
		want  []string
	}{
		{"", slices.Concat([]string{controller, "--only=", node, "--only=failover", epochs, "--only=epochs", pods, "--only=podvolumes", dpuPods, "--only=podvolumes.dpu"}, kept, below)},
		{"podvolumes", []string{pods, "--only=podvolumes", dpuPods, "--only=podvolumes"}},
		{"podvolumes.dpu", []string{dpuPods, "--only=podvolumes.dpu"}},
		{"epochs", []string{epochs, "--only=epochs"}},
		{"podvolumes.new_volume", []string{pods, "--only=podvolumes.new_volume"}},
		{"podvolumes.templates", []string{"--only=podvolumes.templates"}},
		{"rss", []string{controller, "--only=rss"}},
		{"extender", []string{"--only=extender"}},
		{"journal", []string{"--only=journal"}},
		{"extender.http,attach", []string{"--only=extender.http", controller, "--only=attach"}},
		{"failover.fence", []string{controller, "--only=failover.fence", node, "--only=failover.fence"}},
		{"rss,failover", slices.Concat([]string{controller, "--only=rss,failover", node, "--only=failover"}, kept, below)},
		{"failover,rss", slices.Concat([]string{controller, "--only=failover,rss", node, "--only=failover"}, kept, below)},
		{"safety", append([]string{controller, "--only=safety", node, "--only=safety"}, below...)},
		{"failover.snap_killed_with_state", kept},
		{"failover.recorded_below", below},
	} {
		t.Run(tt.bench, func(t *testing.T) {
			c := newCheckout(t)
			if out, code := c.run(t, []string{"BENCH=" + tt.bench}, "hack/steps.sh", "bench"); code != 0 {
				t.Fatalf("exit code %d: %s", code, out)
			}
			var got []string
			for line := range strings.Lines(c.calls(t)) {
				if call, found := strings.CutPrefix(strings.TrimSpace(line), "moor-dev up"); found {
					got = append(got, "up"+call)
				}
				if _, only, found := strings.Cut(strings.TrimSpace(line), "./test/bench "); found {
					got = append(got, only)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("beds and what is measured there (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStepsRunSpecsOnce(t *testing.T) {
	c := newCheckout(t)
	if out, code := c.run(t, nil, "hack/steps.sh", "bed", "e2e"); code != 0 {
		t.Fatal(code, out)
	}
	suites := 0
	for call := range strings.Lines(c.calls(t)) {
		if !strings.Contains(call, ".test -test.timeout") {
			continue
		}
		suites++
		if strings.Contains(call, "flake") || !strings.Contains(call, "-ginkgo.fail-on-empty") {
			t.Errorf("suite called with %s", call)
		}
	}
	if suites < 8 {
		t.Errorf("%d suites were run", suites)
	}
}

func TestStepsFailOnSkips(t *testing.T) {
	for _, tt := range []struct {
		fail string
		code int
	}{{"", 0}, {"^go run .*test/skips/gotest", 1}, {"^go tool .*gotestsum", 1}} {
		if out, code := newCheckout(t).run(t, []string{"FAIL=" + tt.fail}, "hack/steps.sh", "unit"); code != tt.code {
			t.Errorf("with %q failing the exit code is %d, want %d: %s", tt.fail, code, tt.code, out)
		}
	}
}

func TestStepsInterrupted(t *testing.T) {
	// A shell cannot trap what was ignored when it began, as under nohup. What is
	// caught here is as at first in the programs that are started.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for _, tt := range []struct {
		sig   syscall.Signal
		code  int
		apart string
	}{{syscall.SIGINT, 130, ""}, {syscall.SIGTERM, 143, ""}, {syscall.SIGHUP, 129, ""}, {syscall.SIGTERM, 143, "yes"}} {
		t.Run(tt.sig.String()+" "+tt.apart, func(t *testing.T) {
			c := newCheckout(t)
			cmd := c.command(t, []string{"FOCUS=the main job", "HANG=^e2e.test", "APART=" + tt.apart}, "hack/steps.sh", "e2e")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			hung := c.hung(t)
			if err := cmd.Process.Signal(tt.sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code says it
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if err := syscall.Kill(hung, 0); err == nil && !zombie(t, hung) {
				t.Error("what the step started goes on")
			}
			if calls := c.calls(t); !inOrder(calls, "moor-dev up", "e2e.test", "moor-dev down\n", "moor-dev leftovers\n") {
				t.Errorf("calls %s", calls)
			}
		})
	}
}

// hung waits for the program that hangs, and returns the number of what that waits for.
func (c *checkout) hung(t *testing.T) int {
	t.Helper()
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for range looks.C {
		text, err := os.ReadFile(filepath.Join(c.dir, "calls.hung"))
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
			return n
		}
		if t.Context().Err() != nil {
			break
		}
	}
	t.Fatal("the program never ran")
	return 0
}

// zombie reports whether a process has ended, and only its parent does not know yet.
func zombie(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

//go:build root

package hostprobe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

const (
	// device is the name of the link's two ends.
	device = "tmfifo_net0"
	// hostEnv makes the test's program a host.
	hostEnv = "MOOR_LIVENESS_TEST_HOST"
	// soon is the promise: a dead host is seen within it.
	soon = 1500 * time.Millisecond
)

// TestBeAHost is the host that the other test starts; by itself it does nothing.
func TestBeAHost(t *testing.T) {
	if os.Getenv(hostEnv) == "" {
		t.Skip("only when started as a host")
	}
	if err := Serve(context.Background(), ":9400", func() {}); err != nil {
		t.Fatal(err)
	}
}

// addresses are those of a link's two ends.
type addresses struct {
	// ofHost and ofDPU are with the length of their prefix, probed is where the DPU probes its host.
	ofHost, ofDPU, probed string
}

// network is a DPU's network namespace, which the thread of the test is in, and
// a host in one of its own.
type network struct {
	t *testing.T
	addresses
	host *exec.Cmd
}

func (n *network) ip(words string, inHost bool) {
	n.t.Helper()
	argv := append([]string{"ip"}, strings.Fields(words)...)
	if inHost {
		argv = append([]string{"nsenter", "-t", fmt.Sprint(n.host.Process.Pid), "-n"}, argv...)
	}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// boot starts the host, as process 1 of its own namespaces, and makes the link.
func (n *network) boot() {
	n.t.Helper()
	n.host = exec.Command(os.Args[0], "-test.run=^TestBeAHost$")
	n.host.Env = append(os.Environ(), hostEnv+"=1")
	n.host.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := n.host.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.off)
	n.link()
}

// link makes the link, with interfaces of the same names in the place of those of an earlier one.
func (n *network) link() {
	n.t.Helper()
	n.unlink()
	n.ip(fmt.Sprintf("link add %s type veth peer name %[1]s netns %d", device, n.host.Process.Pid), false)
	n.ip("addr add "+n.ofDPU+" dev "+device, false)
	n.ip("link set "+device+" up", false)
	n.join()
}

// unlink removes the link, if there is one.
func (n *network) unlink() { _ = exec.Command("ip", "link", "del", device).Run() }

// join has the host's end up with its address: one of IPv6 goes with a link that is down.
func (n *network) join() {
	n.t.Helper()
	n.ip("addr replace "+n.ofHost+" dev "+device, true)
	n.ip("link set "+device+" up", true)
}

func (n *network) off() {
	if n.host.ProcessState == nil {
		_ = n.host.Process.Kill()
		_ = n.host.Wait()
	}
}

// TestRealLink looks at a host in a network namespace of its own, which is
// stopped, cut off and killed, by the addresses that a BlueField and its host have, and by
// those that DPF gives them.
func TestRealLink(t *testing.T) {
	for name, has := range map[string]addresses{
		"BlueField": {ofHost: "192.168.100.1/30", ofDPU: "192.168.100.2/30", probed: "192.168.100.1:9400"},
		"DPF 2026":  {ofHost: "fe80::1/64", ofDPU: "fe80::2/64", probed: "[fe80::1%" + device + "]:9400"},
	} {
		t.Run(name, func(t *testing.T) { look(t, has) })
	}
}

func look(t *testing.T, has addresses) {
	runtime.LockOSThread() // never unlocked: the thread is not fit for others
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	n := &network{t: t, addresses: has}
	n.boot()
	w := NewWatcher(Options{Prober: NewTCP(has.probed)})
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	// The looks are on this thread, which is in the DPU's namespace.
	until := func(what string, within time.Duration, ok func(*moorv1alpha1.HostObservation) bool) {
		t.Helper()
		began := time.Now()
		for !ok(w.Observed()) {
			if time.Since(began) > within {
				t.Fatalf("%s: not seen within %s: %+v", what, within, w.Observed())
			}
			<-ticker.C
			w.probe(t.Context())
		}
		t.Logf("%s: seen after %s: %s", what, time.Since(began).Round(time.Millisecond), w.Observed().Evidence)
	}
	alive := func(s *moorv1alpha1.HostObservation) bool {
		return s != nil && s.Alive && strings.Contains(s.Evidence, "plugin answers")
	}
	dead := func(s *moorv1alpha1.HostObservation) bool { return s != nil && !s.Alive }
	until("boot", 30*time.Second, alive)

	if err := n.host.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until("hung", soon, func(s *moorv1alpha1.HostObservation) bool { return s.Alive && strings.HasPrefix(s.Evidence, "hung") })
	for range 10 { // and it stays so
		<-ticker.C
		w.probe(t.Context())
		if s := w.Observed(); !s.Alive || !strings.HasPrefix(s.Evidence, "hung") {
			t.Fatalf("a host of which the kernel alone answers: %+v", s)
		}
	}
	if err := n.host.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until("awake", soon, alive)

	n.ip("link set "+device+" down", true)
	until("cut", soon, dead)
	n.join()
	until("joined", 5*time.Second, alive)
	n.unlink()
	until("gone", soon, dead)
	n.link()
	until("made anew", 10*time.Second, alive)

	n.off()
	n.unlink() // the kernel does so too, and takes its time
	until("killed", soon, dead)
	n.boot()
	until("booted again", 30*time.Second, alive)
	w.o.Prober.(*TCP).drop()
}

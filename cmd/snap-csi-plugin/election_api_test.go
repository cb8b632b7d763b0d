//go:build api

package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/api/apiserver"
)

// process is a controller in a process of its own, as there are several in a cluster.
type process struct {
	plugin
	b    *bed
	cmd  *exec.Cmd
	said bytes.Buffer
	// ended gets what became of it.
	ended chan error
}

// launch starts a controller that waits for its lease, and to which the bed's calls go.
func (b *bed) launch(program string, args ...string) *process {
	b.t.Helper()
	p := &process{b: b, ended: make(chan error, 1)}
	args = append(append(b.flags(), "--leader-elect", "--leader-election-namespace="+namespace), args...)
	p.plugin, p.cmd = b.plugin, exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	b.must(p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	b.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if b.t.Failed() {
			b.t.Logf("%v:\n%s", p.cmd.Args, p.said.String())
		}
	})
	b.until("ready", b.ready)
	return p
}

// end is what becomes of the process, which ends within a while.
func (p *process) end(within time.Duration) error {
	p.b.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err // for the end of the test
		return err
	case <-time.After(within):
		p.b.t.Fatalf("it still runs after %s", within)
		return nil
	}
}

// metric reports whether a line of /metrics begins so.
func (p *process) metric(begins string) bool {
	p.b.t.Helper()
	p.b.plugin = p.plugin
	_, text := p.b.asked("/metrics")
	return strings.Contains(text, "\n"+begins)
}

// leads reports whether the process has the lease of its driver.
func (p *process) leads(driver string) bool {
	p.b.t.Helper()
	return p.metric(`leader_election_master_status{name="snap-csi-plugin-` + driver + `"} 1`)
}

// passes reports whether it has ever looked at a volume for its replicas.
func (p *process) passes() bool {
	p.b.t.Helper()
	return p.metric(`controller_runtime_reconcile_time_seconds_count{controller="replica"}`)
}

// answers checks that the process is ready and answers calls.
func (p *process) answers() {
	p.b.t.Helper()
	p.b.plugin = p.plugin
	if !p.b.ready() {
		p.b.t.Error("it was ready, and is not")
	}
	_, err := p.csi.ListVolumes(p.b.t.Context(), &csispec.ListVolumesRequest{})
	p.b.must(err)
}

// TestTwoControllers: of two controllers both are ready and answer, and one makes replicas.
// The other goes on as soon as that one ends, and ends itself when it loses the lease.
// A driver of another name is no part of this.
func TestTwoControllers(t *testing.T) {
	program := filepath.Join(t.TempDir(), "snap-csi-plugin")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := &bed{One: apiserver.StartOne(t, apiserver.Host), t: t}
	b.Deploy("snap-csi-plugin-rbac.yaml")
	b.nodes()
	first := b.launch(program)
	b.until("the first leads", func() bool { return first.leads(podvolume.DefaultDriver) })
	second := b.launch(program)
	other := b.launch(program, "--name=virtiofs.example.com")
	b.until("another driver leads beside it", func() bool { return other.leads("virtiofs.example.com") })

	// Each call goes to another process than the one before.
	b.plugin = second.plugin
	b.provision()
	b.plugin = first.plugin
	b.publish("a")
	b.replicated()
	b.plugin = second.plugin
	b.unpublish("a")
	if second.leads(podvolume.DefaultDriver) || second.passes() {
		t.Error("two make replicas")
	}
	b.until("whom the replica stays for", b.staying)
	first.answers()

	b.must(first.cmd.Process.Signal(syscall.SIGTERM))
	b.must(first.end(20 * time.Second))
	began := time.Now()
	b.until("the second leads", func() bool { second.answers(); return second.leads(podvolume.DefaultDriver) })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the second leads after %s: the first did not give its lease back", took)
	}
	b.publish("c")
	b.until("its words on the missing replica", func() bool {
		s := b.read().Status.Replicas
		return s != nil && s.PrimaryGoneSince == nil && s.Missing == 1 && second.passes()
	})
	b.takeLease()
	var code *exec.ExitError
	if err := second.end(30 * time.Second); !errors.As(err, &code) || code.ExitCode() != 1 || !strings.Contains(second.said.String(), "leader election lost") {
		t.Errorf("it lost its lease: %v", err)
	}
	other.answers()
}

// takeLease gives the lease of the driver to a process that does not renew it.
func (b *bed) takeLease() {
	b.t.Helper()
	b.until("the lease is taken", func() bool {
		l := &coordinationv1.Lease{}
		b.must(b.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: "snap-csi-plugin-" + podvolume.DefaultDriver}, l))
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = ptr.To("another"), ptr.To[int32](3600)
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		return b.Update(b.t.Context(), l) == nil
	})
}

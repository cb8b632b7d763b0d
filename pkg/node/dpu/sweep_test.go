package dpu

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/node/dpu/patrol"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// abandon removes the attachment from the API without the driver's doing.
func abandon(c *cluster, a *storagev1alpha1.VolumeAttachment) {
	c.t.Helper()
	a = c.get(a.Name)
	a.Finalizers = nil
	c.must(c.Update(c.t.Context(), a))
	c.must(c.Delete(c.t.Context(), a))
}

func TestOrphansAreSwept(t *testing.T) {
	c, m, a := attached(t)
	abandon(c, a)
	// A subsystem that a crash left empty is an orphan too.
	c.must(m.rpc.NvmeSubsystemCreate(t.Context(), snap.NQN("half-made")))
	c.must(m.patrol.Round(t.Context()))
	m.clock.Step(10 * time.Second)
	c.must(m.patrol.Round(t.Context()))
	if len(m.shown()) != 2 {
		t.Fatalf("swept within one period: %v", m.shown())
	}
	m.clock.Step(time.Second)
	for range 2 {
		c.must(m.patrol.Round(t.Context()))
	}
	m.wantEmpty()
}

func TestLiveOnesAreNeverSwept(t *testing.T) {
	c, m, a := attached(t)
	// Of another volume only the device is made; a third is being deleted
	// and cannot go, since the vendor fails.
	c.volume("v2", corev1.ReadWriteOnce)
	c.must(m.pass(c.attachment("v2", "dpu-1").Name))
	c.volume("v3", corev1.ReadWriteMany)
	third := m.settle(c.attachment("v3", "dpu-1").Name)
	m.vendor.fail["DeleteDevice"] = provisioner.ErrUnavailable
	c.must(c.Delete(t.Context(), third))
	if err := m.pass(third.Name); err == nil {
		t.Fatal("detached though the vendor fails")
	}
	// A device that no status records belongs to its volume's attachment.
	unrecorded := c.attachment("v4", "dpu-1")
	_, err := m.vendor.CreateDevice(t.Context(), provisioner.OpenSpec{VolumeID: "v4-pvc"})
	c.must(err)
	devices := m.bdevs()
	for range 5 {
		c.must(m.patrol.Round(t.Context()))
		m.clock.Step(time.Hour)
	}
	if !m.shown()["dev_v1-pvc"].Visible || !slices.Equal(m.bdevs(), devices) || len(devices) != 4 {
		t.Fatalf("swept: %v, %v; attachments %s, %s", m.shown(), m.bdevs(), a.Name, unrecorded.Name)
	}
}

func TestForeignThingsAreNeverSwept(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	const nqn = "nqn.2014-08.org.example:mine"
	c.must(m.rpc.NvmeSubsystemCreate(t.Context(), nqn))
	for _, volume := range []string{"anothers", "theirs"} {
		_, err := m.vendor.CreateDevice(t.Context(), provisioner.OpenSpec{VolumeID: volume})
		c.must(err)
	}
	c.must(m.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: "dev_theirs"}))
	for range 5 {
		c.must(m.patrol.Round(t.Context()))
		m.clock.Step(time.Hour)
	}
	subsystems, err := m.rpc.NvmeSubsystemList(t.Context())
	if err != nil || len(subsystems) != 2 || len(subsystems[1].Namespaces) != 1 || len(m.bdevs()) != 2 {
		t.Fatalf("swept: %+v, %v, %v", subsystems, m.bdevs(), err)
	}
}

func TestNoSweepWithoutTheServer(t *testing.T) {
	c, m, a := attached(t)
	abandon(c, a)
	c.must(m.patrol.Round(t.Context()))
	lost := errors.New("no route")
	reads := 0
	// The cache still answers, and says that there is no attachment.
	c.onRead = func() error {
		if reads++; reads%2 == 0 {
			return lost
		}
		return nil
	}
	for range 5 {
		m.clock.Step(time.Hour)
		reads = 0
		if err := m.patrol.Round(t.Context()); !errors.Is(err, lost) {
			t.Fatalf("got %v", err)
		}
	}
	if !m.shown()["dev_v1-pvc"].Visible {
		t.Fatal("swept without a word of the API server")
	}
}

// TestSweepAsksAgain: between the suspicion and the removal an attachment comes
// to need the device.
func TestSweepAsksAgain(t *testing.T) {
	c, m, a := attached(t)
	abandon(c, a)
	c.must(m.patrol.Round(t.Context()))
	m.clock.Step(time.Hour)
	reads := 0
	c.onRead = func() error {
		if reads++; reads == 3 { // cache, API server, and again before the removal
			c.grant(c.attachment("v1", "dpu-1"), 2)
		}
		return nil
	}
	c.must(m.patrol.Round(t.Context()))
	c.onRead = nil
	if reads < 3 || !m.shown()["dev_v1-pvc"].Visible {
		t.Fatalf("swept from under a new attachment (%d reads): %v", reads, m.shown())
	}
}

func TestSweepKeepsAwayFromAPass(t *testing.T) {
	c, m, a := attached(t)
	abandon(c, a)
	c.must(m.patrol.Round(t.Context()))
	m.clock.Step(time.Hour)
	unlock, ok := m.exposures.Lock("", "dev_v1-pvc")
	if !ok {
		t.Fatal("locked")
	}
	c.must(m.patrol.Round(t.Context()))
	if len(m.shown()) != 1 {
		t.Fatal("swept while a pass works on the device")
	}
	unlock()
	c.must(m.patrol.Round(t.Context()))
	if len(m.shown()) != 0 {
		t.Fatal("not swept after the pass")
	}
}

func TestPatrol(t *testing.T) {
	_, m, _ := attached(t)
	ctx, cancel := context.WithCancel(t.Context())
	done, rounds := make(chan error, 1), make(chan time.Duration)
	o := m.patrolOptions()
	o.Clock = clock.RealClock{}
	o.Jitter = func(d time.Duration) time.Duration {
		select {
		case rounds <- d:
		case <-ctx.Done():
		}
		return time.Millisecond
	}
	before := m.calls("nvme_subsystem_list")
	go func() { done <- patrol.New(o).Start(ctx) }()
	for range 3 {
		if d := <-rounds; d != 10*time.Second {
			t.Fatalf("the next round comes in %s", d)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := m.calls("nvme_subsystem_list") - before; got < 3 {
		t.Fatalf("%d listings in 3 rounds", got)
	}
}

// TestLiveness: a device that its plugin knows no more is looked at again,
// whether the plugin lists or is asked by GetDevice, which DPF's plugins serve
// without announcing it. A plugin that says nothing of it is no witness.
func TestLiveness(t *testing.T) {
	cases := map[string]struct {
		can  vendorplugin.Capabilities
		get  error
		want int
	}{
		"listed":          {vendorplugin.Capabilities{Block: true, List: true}, nil, 0},
		"listed, gone":    {vendorplugin.Capabilities{Block: true, List: true}, provisioner.ErrNotFound, 1},
		"listed, silent":  {vendorplugin.Capabilities{Block: true, List: true}, errors.New("broken"), 0},
		"not listed":      {vendorplugin.Capabilities{Block: true}, nil, 0},
		"gone":            {vendorplugin.Capabilities{Block: true}, provisioner.ErrNotFound, 1},
		"cannot tell":     {vendorplugin.Capabilities{Block: true}, provisioner.ErrUnsupported, 0},
		"does not answer": {vendorplugin.Capabilities{Block: true}, provisioner.ErrUnavailable, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, m, _ := attached(t)
			m.vendor.can = c.can
			m.vendor.fail["GetDevice"] = c.get
			if err := m.patrol.Round(t.Context()); err != nil || len(m.queue.Events()) != c.want {
				t.Fatalf("%d looked at again, %v", len(m.queue.Events()), err)
			}
		})
	}
}

func TestState(t *testing.T) {
	_, m, _ := attached(t)
	state, err := m.reporter.State(t.Context())
	want := []moorv1alpha1.FunctionCount{{Type: "pf", Total: 1}, {Type: "vf", Total: 4, Free: 3}, {Type: "hotplug", Total: 31, Free: 31}}
	if err != nil || !state.SNAPReady || !slices.Equal(state.Functions, want) ||
		!slices.Equal(state.Plugins, []moorv1alpha1.PluginState{{Name: "local", Ready: true}}) {
		t.Fatalf("got %+v, %v", state, err)
	}
	m.vendor.fail["Probe"] = provisioner.ErrUnavailable
	m.emu.Stop()
	state, err = m.reporter.State(t.Context())
	if err != nil || state.SNAPReady || state.Plugins[0].Ready || state.Plugins[0].Message == "" {
		t.Fatalf("got %+v, %v", state, err)
	}
	select {
	case <-m.changed.C():
	default:
		t.Fatal("an attachment is no change")
	}
}

// TestHostChangeIsToldAtOnce: a service that hangs does not hold up the word
// that the host is dead.
func TestHostChangeIsToldAtOnce(t *testing.T) {
	_, m, _ := attached(t)
	seen := &moorv1alpha1.HostObservation{Alive: true}
	m.reporter.Host = func() *moorv1alpha1.HostObservation { return seen }
	before, err := m.reporter.State(t.Context())
	if err != nil || before.Host == nil || !before.Host.Alive {
		t.Fatalf("got %+v, %v", before, err)
	}
	for len(m.changed.C()) > 0 {
		<-m.changed.C()
	}
	m.inject(map[string]any{"method": "emulation_function_list", "hang": true, "count": -1})
	seen = &moorv1alpha1.HostObservation{Evidence: "silence"}
	m.changed.AskOfHost()
	<-m.changed.C()
	ended, cancel := context.WithCancel(t.Context())
	cancel() // every call fails at once now
	state, err := m.reporter.State(ended)
	if err != nil || state.Host.Alive || !state.SNAPReady || !slices.Equal(state.Functions, before.Functions) {
		t.Fatalf("got %+v, %v", state, err)
	}
	<-m.changed.C() // and the whole is asked for
	if state, err = m.reporter.State(ended); err != nil || state.SNAPReady || state.Host.Alive {
		t.Fatalf("the rest is never asked again: %+v, %v", state, err)
	}
	m.clear()
}

package failover

import (
	"errors"
	"strings"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestDecide: only of a host that lives does the lease of its DPU decide: a dead one is fenced
// by force all the same, and one without a lease is not said to have promised anything.
func TestDecide(t *testing.T) {
	given, ended := writer.Lease{Given: true}, writer.Lease{Given: true, Ended: true}
	for name, tc := range map[string]struct {
		state  State
		lease  writer.Lease
		action Action
		says   string
	}{
		"silent, no lease":     {DPUDead, writer.Lease{}, Hold, "it is so"},
		"silent, a lease":      {DPUDead, given, Hold, "it is so; it has promised to withdraw by itself, and the end of its lease is waited for"},
		"silent, its end":      {DPUDead, ended, Evict, "it is so; its lease is over, so it withdraws by itself or is reset, and the host has lost its volumes"},
		"both dead, a lease":   {BothDead, given, Fence, "it is so"},
		"both dead, its end":   {BothDead, ended, Fence, "it is so"},
		"seen dead, a lease":   {HostDead, given, Fence, "it is so"},
		"well, a lease":        {Healthy, given, Restore, "it is so"},
		"cut off, its end":     {HostCutOff, ended, Hold, "it is so"},
		"all is sick, its end": {ControlPlaneSick, ended, Hold, "it is so"},
	} {
		p := &pass{state: tc.state, lease: tc.lease, evidence: "it is so"}
		if p.decide(); p.action != tc.action || p.evidence != tc.says {
			t.Errorf("%s: %s: %q, want %s: %q", name, p.action, p.evidence, tc.action, tc.says)
		}
	}
}

// TestALeaseIsRead: how it is, and when to look again so that its end, and its bound, are seen
// at once. Nothing comes of one that is not given.
func TestALeaseIsRead(t *testing.T) {
	p := writer.Promise{Duration: leaseDuration, Grace: leaseGrace}
	for name, tc := range map[string]struct {
		before func(leaseFixture)
		after  time.Duration
		want   writer.Lease
		again  time.Duration
	}{
		"renewed now":      {func(leaseFixture) {}, 0, writer.Lease{Given: true, Left: p.Bound()}, p.End()},
		"a while ago":      {func(leaseFixture) {}, 10 * time.Second, writer.Lease{Given: true, Left: p.Bound() - 10*time.Second}, p.End() - 10*time.Second},
		"it has ended":     {func(leaseFixture) {}, p.End(), writer.Lease{Given: true, Ended: true, Left: p.Bound() - p.End()}, p.Bound() - p.End()},
		"it is over":       {func(leaseFixture) {}, p.Bound(), writer.Lease{Given: true, Ended: true}, 0},
		"none is given":    {func(s leaseFixture) { s.alone(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Lease = nil }) }, 0, writer.Lease{Left: writer.Promise{}.Bound()}, 0},
		"it has no object": {func(s leaseFixture) { s.DPU.Remove(kubetest.DPUStorageNode("dpu-a")) }, 0, writer.Lease{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeaseStage(t)
			tc.before(s)
			l := &leases{dpu: s.DPU.Cluster, clock: s.Clock}
			if _, _, err := l.read(t.Context(), s.DPU.Client, "dpu-a"); err != nil {
				t.Fatal(err)
			}
			s.Step(tc.after)
			lease, again, err := l.read(t.Context(), s.DPU.Client, "dpu-a")
			if err != nil || lease != tc.want || again != tc.again {
				t.Errorf("%+v, again after %s, %v; want %+v after %s", lease, again, err, tc.want, tc.again)
			}
		})
	}
}

// TestALeaseThatCannotBeRead is told as such, is not over and forgets no renewal.
func TestALeaseThatCannotBeRead(t *testing.T) {
	s := newLeaseStage(t)
	s.Step(71 * time.Second)
	f := &fails{at: 1}
	lease, again, err := s.f.leases.read(t.Context(), f.of(s.DPU.Client), "dpu-a")
	if !errors.Is(err, errNoAnswer) || !strings.Contains(err.Error(), "dpu-a") || lease.Given || again != 0 {
		t.Errorf("%+v, again after %s, %v", lease, again, err)
	}
	if lease, _, err = s.f.leases.read(t.Context(), s.DPU.Client, "dpu-a"); err != nil || !lease.Over() {
		t.Errorf("%+v, %v, want it over", lease, err)
	}
}

// TestAReceiptThatCannotBeRead: a lease that is over as the cache has it, or as the pass began
// with it, is no receipt if the API server does not answer.
func TestAReceiptThatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		is    func(*pass, *target)
		reads int
	}{
		"of the host's DPU": {inTheFence, 1},
		"of another DPU":    {together(inTheFence, func(p *pass, _ *target) { p.node.Spec.DPUName = "dpu-c" }), 2},
	} {
		for at := 1; at <= tc.reads; at++ {
			s := newLeaseStage(t)
			p, target := s.fencePass()
			p.heartbeat = func(string) nodehealth.Beat { return nodehealth.Stale }
			p.lease = writer.Lease{Given: true, Ended: true}
			tc.is(p, target)
			s.Step(71 * time.Second)
			f := &fails{at: at}
			l := s.f.leases
			l.dpu = kube.Cluster{Client: f.of(s.DPU.Client), Live: f.of(s.DPU.Live)}
			if lease, err := l.confirm(t.Context(), p, target); !errors.Is(err, errNoAnswer) || lease.Over() || f.n != at {
				t.Errorf("%s, read %d of %d: %+v, %v", name, at, f.n, lease, err)
			}
		}
	}
}

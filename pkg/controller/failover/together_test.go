package failover

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// sender is a host whose kubelet, plugin and DPU beat every ten seconds, each at a time
// of its own.
type sender struct {
	node                *moorv1alpha1.DPUStorageNode
	kubelet, host, card time.Duration
	silent              bool
}

// beat sends what is due at a moment.
func (h *sender) beat(o *nodehealth.Observer, at, step time.Duration, now time.Time) {
	due := func(phase time.Duration) bool { return !h.silent && (at-phase)%(10*time.Second) < step }
	if due(h.kubelet) {
		o.Kubelet(h.node.Name, now)
	}
	if due(h.host) {
		h.node.Status.Host.Sequence++
	}
	if due(h.card) {
		h.node.Status.DPU.Sequence++
	}
	o.Observe(h.node)
}

// TestSilenceOfMany: hosts fall silent at once, and both API servers answer. The first
// ones whose witnesses are all late are not judged before it is known who else has
// fallen silent: if it is all of them, nothing of theirs is taken; if it is one rack of
// many, its hosts are dead, some seconds later than one host alone.
func TestSilenceOfMany(t *testing.T) {
	const step = 250 * time.Millisecond
	for _, tc := range []struct {
		hosts, silent int
		// dead is when the first is found dead, and all when the last; 0: none is.
		dead, all time.Duration
	}{
		{hosts: 300, silent: 300},
		{hosts: 300, silent: 150},
		{hosts: 100, silent: 100},
		{hosts: 20, silent: 20},
		{hosts: 300, silent: 1, dead: 3 * time.Second, all: 14 * time.Second},
		{hosts: 20, silent: 2, dead: 3 * time.Second, all: 14 * time.Second},
		{hosts: 300, silent: 40, dead: 3 * time.Second, all: 26 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d of %d", tc.silent, tc.hosts), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			phase := func() time.Duration { return time.Duration(rng.IntN(40)) * step }
			c := clocktesting.NewFakePassiveClock(kubetest.Begin)
			o := nodehealth.New(c, 0, 0)
			senders := make([]*sender, tc.hosts)
			for i := range senders {
				n := kubetest.DPUStorageNode(fmt.Sprintf("h%d", i))
				n.Status.Host, n.Status.DPU = &moorv1alpha1.HostState{}, &moorv1alpha1.DPUState{Host: &moorv1alpha1.HostObservation{Alive: true}}
				senders[i] = &sender{node: n, kubelet: phase(), host: phase(), card: phase()}
			}
			const begin = 60 * time.Second
			dead := map[string]time.Duration{}
			for at := 20 * time.Second; at < begin+60*time.Second; at += step {
				now := c.Now().Add(step)
				c.SetTime(now)
				o.SelfHeartbeat(nodehealth.HostCluster)
				o.SelfHeartbeat(nodehealth.DPUCluster)
				fleet, seen := Fleet{}, make([]nodehealth.Observation, len(senders))
				for i, h := range senders {
					h.silent = at >= begin && i < tc.silent
					h.beat(o, at, step, now)
					seen[i] = o.Known(h.node.Name)
					fleet.add(seen[i], o.Lateness(h.node.Name), APIReady)
				}
				for i, s := range seen {
					state, evidence := Classify(Inputs{API: APIReady, Host: s.Host, Kubelet: s.Kubelet, DPU: s.DPU, HostSeen: s.HostSeen, Fleet: fleet})
					if _, known := dead[senders[i].node.Name]; known || actions[state] != Fence {
						continue
					}
					if i >= tc.silent || tc.dead == 0 {
						t.Fatalf("%s after %s: %s (%s)", senders[i].node.Name, at-begin, state, evidence)
					}
					dead[senders[i].node.Name] = at - begin
				}
			}
			if tc.dead == 0 {
				return
			}
			if len(dead) != tc.silent {
				t.Errorf("%d hosts were found dead of %d", len(dead), tc.silent)
			}
			for name, after := range dead {
				if after < tc.dead || after > tc.all {
					t.Errorf("%s after %s, want %s to %s", name, after, tc.dead, tc.all)
				}
			}
		})
	}
}

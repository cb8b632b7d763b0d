//go:build e2e

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// What a failover may take, from the fault to the first lines that the new pod has
// fsynced. The targets of docs/benchmarks.md are a third of it and less: the rest is
// for a machine that does other work too. A failover that ends later has failed,
// even if it ends well: something was waited for that need not be waited for.
const (
	// hostDead is for a host without power whose DPU says so, within 1.5 s
	// (docs/failover.md).
	hostDead = 30 * time.Second
	// bothDead is for a host that is silent together with its DPU, which counts as
	// dead 3 to 14 s later (docs/failover.md, "Limits"), and for faults by which something of the failover has to be done twice.
	bothDead = 60 * time.Second
	// drained is how much later an epoch is retired whose SNAP service has died
	// (--lease-drain, docs/failover.md).
	drained = 10 * time.Second
	// pathLost is for a DPU that loses its way to the storage: it notices within 8 s, and
	// the volume moves 15 s later (pathTimeout, docs/failover.md).
	pathLost = 23*time.Second + hostDead
	// snapAway is for a SNAP service that stays away: that counts as a lost path after 20 s,
	// which are borne for longer than pathTimeout then.
	snapAway = 20*time.Second + hostDead
	// budgetSpent is for a host that waits until the budget of a minute allows it.
	budgetSpent = time.Minute + hostDead
	// takenOver is for replicas of controllers whose leaders have died (moor.Elect): their leases
	// count for 5 s, and another tries within 4.4 retry periods of half a second.
	takenOver = 8 * time.Second
	// leaseOver is for a DPU that gives a lease of 8 s, drains for 3 s and has a
	// watchdog of 5 s: the bound of docs/decisions/0007-lease-bound.md is 8 + 3*5 + 3 s,
	// and it counts from the last renewal. Then the pod of a living host is evicted.
	leaseOver = 26*time.Second + hostDead
	// silentLetsGo is for what goes without a DPU that is silent: it counts as that after 25 s
	// (--heartbeat-timeout), and is looked at each 10 s; the pod ends and the vendor detaches beside.
	silentLetsGo = 35*time.Second + hostDead
)

// powerCut is for a BMC: other proofs are waited for 15 s if one can come, then it is off for 25 s, with room
// for what machines take to end, and for a second request after a minute.
const powerCut = 2 * time.Minute

// due is by when a pod has to write again.
type due struct {
	begin time.Time
	bound time.Duration
}

// within is a bound that counts from now.
func within(bound time.Duration) due { return due{time.Now(), bound} }

// met expects that what was due has happened by now.
func (d due) met(what string) {
	GinkgoHelper()
	took := time.Since(d.begin)
	GinkgoWriter.Printf("%s after %s\n", what, took.Round(time.Millisecond))
	Expect(took).To(BeNumerically("<=", d.bound), "%s, but after %s and not within %s", what, took.Round(time.Millisecond), d.bound)
}

//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

var (
	databaseSequences = flag.Int("sequences", 1, "how many random sequences of faults the database is to survive")
	// randomSeed is of whatever is random here.
	randomSeed = flag.Uint64("seed", 0, "of the first of these sequences, each of which has the next seed, and of false alarms; 0 is one of its own")
)

const (
	// inSequence is how many faults a sequence has.
	inSequence = 3
	// storageAway is how long the storage answers nothing.
	storageAway = 2 * time.Minute
)

// databaseFault is one that by docs/failover.md needs no person.
type databaseFault struct {
	name string
	// do begins it, waits for what has to come first, and ends it.
	do func(context.Context, *postgres)
}

// databaseFaults are all of them. Left out is what needs a person on a bed without leases and BMCs: a host that is cut
// off from the network, or whose processes hang, while its DPU sees it alive, and a DPU that stays
// away while its host lives: these are held, as the pod may still serve. So is the death of all hosts at once.
var databaseFaults = []databaseFault{
	{"its host loses power", func(ctx context.Context, p *postgres) {
		powerOff(ctx, p.host)
		p.moved(ctx)
		Expect(bed.PowerOn(ctx, p.host)).To(Succeed())
	}},
	{"its host loses power with its DPU", func(ctx context.Context, p *postgres) {
		powerOff(ctx, p.host, p.dpu)
		p.moved(ctx)
		Expect(bed.PowerOn(ctx, p.dpu)).To(Succeed())
		Expect(bed.PowerOn(ctx, p.host)).To(Succeed())
	}},
	{"its host loses power, and every controller is killed", func(ctx context.Context, p *postgres) {
		powerOff(ctx, p.host)
		kill(controllers...)
		start(ctx, controllers...)
		p.moved(ctx)
		Expect(bed.PowerOn(ctx, p.host)).To(Succeed())
	}},
	{"its host is drained", func(ctx context.Context, p *postgres) {
		drain(ctx, p.host, p.pod)
		p.moved(ctx)
		cordon(ctx, p.host, false)
	}},
	{"its host loses the link to its DPU", func(ctx context.Context, p *postgres) {
		pair, err := strconv.Atoi(strings.TrimPrefix(p.host, "host-"))
		Expect(err).NotTo(HaveOccurred())
		claim := p.claim(ctx).Status
		join := during(ctx, p.host, func(ctx context.Context, _ string) error { return bed.CutLink(ctx, pair) },
			func(ctx context.Context, _ string) error { return bed.JoinLink(ctx, pair) })
		Consistently(func(ctx context.Context) *moorv1alpha1.WriterClaimStatus { return p.claim(ctx).Status }).WithContext(ctx).
			WithTimeout(linkAway).WithPolling(tick).Should(HaveValue(Equal(*claim)))
		join(ctx)
		p.stays(ctx)
	}},
	{"SNAP is killed and comes back", func(ctx context.Context, p *postgres) {
		restart(ctx, "snap-emulator-"+p.dpu)
		p.moved(ctx)
	}},
	{"SNAP is killed and stays away", func(ctx context.Context, p *postgres) {
		back := during(ctx, "snap-emulator-"+p.dpu, func(_ context.Context, name string) error { return bed.Kill(name, syscall.SIGKILL) }, bed.Restart)
		p.moved(ctx)
		back(ctx)
	}},
	{"its DPU is booted", func(ctx context.Context, p *postgres) {
		powerOff(ctx, p.dpu)
		Expect(bed.PowerOn(ctx, p.dpu)).To(Succeed())
		p.moved(ctx)
	}},
	{"its DPU loses the path to the storage", func(ctx context.Context, p *postgres) {
		back := during(ctx, p.dpu, bed.CutStorage, bed.JoinStorage)
		p.moved(ctx)
		back(ctx)
	}},
	{"the storage is started again", func(ctx context.Context, _ *postgres) {
		restart(ctx, "moor-target")
	}},
	{"the storage is away for two minutes", func(ctx context.Context, p *postgres) {
		back := during(ctx, "moor-target", bed.Pause, bed.Resume)
		lasts(ctx, storageAway)
		back(ctx)
		p.stays(ctx)
	}},
	{"both API servers are away for a minute", func(ctx context.Context, p *postgres) {
		begin := time.Now()
		resumeHost := during(ctx, "host-apiserver", bed.Pause, bed.Resume)
		resumeDPU := during(ctx, "dpu-apiserver", bed.Pause, bed.Resume)
		lasts(ctx, outage-time.Second)
		p.commits(ctx, time.Now())
		Expect(p.client.Ledger.Pause(begin)).To(BeNumerically("<", outage/2), "it was served all the time")
		resumeHost(ctx)
		resumeDPU(ctx)
		p.stays(ctx)
	}},
	{"node driver, plugins and controllers are killed, one after the other", func(ctx context.Context, p *postgres) {
		for _, name := range oursOf(p.host) {
			if !strings.HasPrefix(name, "snap-emulator") {
				restart(ctx, name)
			}
		}
		p.stays(ctx)
	}},
}

// lasts lets a fault last, in which nothing is to be seen.
func lasts(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stays expects that the same pod serves the database as before.
func (p *postgres) stays(ctx context.Context) {
	GinkgoHelper()
	p.commits(ctx, time.Now())
	Expect(runs(ctx, p.key).UID).To(Equal(p.pod.UID), "the pod is the same")
}

// sequence are the faults of a seed, in its order.
func sequence(seed uint64) []databaseFault {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(databaseFaults))
	var out []databaseFault
	for _, i := range order[:inSequence] {
		out = append(out, databaseFaults[i])
	}
	return out
}

var _ = Describe("a database", slow, Label("database"), func() {
	Describe("loses no commit", Ordered, ContinueOnFailure, func() {
		var p *postgres
		BeforeAll(func(ctx context.Context) { p = newPostgres(ctx) })
		AfterAll(func(ctx context.Context) {
			if p != nil {
				p.closes(ctx)
			}
		})
		for _, f := range databaseFaults {
			It("when "+f.name, func(ctx context.Context) { p.survives(ctx, f) })
		}
	})

	// Each has a database of its own: pods of a volume whose mount dies again and again are made anew
	// five times an hour by themselves.
	first := *randomSeed
	if first == 0 {
		first = rand.Uint64N(1 << 32)
	}
	for i := range *databaseSequences {
		seed := first + uint64(i)
		faults := sequence(seed)
		var names []string
		for _, f := range faults {
			names = append(names, f.name)
		}
		It(fmt.Sprintf("loses no commit in the sequence of seed %d: %s", seed, strings.Join(names, "; ")), func(ctx context.Context) {
			p := newPostgres(ctx)
			for _, f := range faults {
				p.survives(ctx, f)
			}
			p.closes(ctx)
		})
	}
})

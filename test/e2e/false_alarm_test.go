//go:build e2e

package e2e

import (
	"context"
	"flag"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// falseAlarms is for how long alarms are raised; which ones follows from -seed.
var falseAlarms = flag.Duration("false-alarms", time.Minute, "for how long hosts that live are to bear what looks like a death")

// linkAway is for how long a link is cut: longer than a host beats because of it, and than its last heartbeat
// before that counts.
const linkAway = 20 * time.Second

// alarm is what maintenance does to a host or its DPU, which both go on working.
type alarm struct {
	name string
	// begin does it to the pair of a number; end undoes it.
	begin func(ctx context.Context, pair string) (end func(context.Context))
}

var alarms = []alarm{
	{"the link between host and DPU is silent", linkOf},
	{"the node plugin is started anew", func(ctx context.Context, pair string) func(context.Context) {
		restart(ctx, "snap-csi-plugin-host-"+pair)
		return func(context.Context) {}
	}},
	{"the driver of the DPU is started anew", func(ctx context.Context, pair string) func(context.Context) {
		restart(ctx, "snap-node-driver-dpu-"+pair)
		return func(context.Context) {}
	}},
	{"the host has no network", func(ctx context.Context, pair string) func(context.Context) {
		return during(ctx, "host-"+pair, bed.CutNetwork, bed.JoinNetwork)
	}},
	{"the DPU does not reach the API server", func(ctx context.Context, pair string) func(context.Context) {
		return during(ctx, "dpu-"+pair, bed.CutAPI, bed.JoinAPI)
	}},
}

// linkOf cuts the link of a pair.
func linkOf(ctx context.Context, pair string) (join func(context.Context)) {
	GinkgoHelper()
	n, err := strconv.Atoi(pair)
	Expect(err).NotTo(HaveOccurred())
	return during(ctx, "host-"+pair, func(ctx context.Context, _ string) error { return bed.CutLink(ctx, n) },
		func(ctx context.Context, _ string) error { return bed.JoinLink(ctx, n) })
}

// seenOf is what the DPU of a host sees of it.
func seenOf(host string) func(context.Context) (*moorv1alpha1.HostObservation, error) {
	return func(ctx context.Context) (*moorv1alpha1.HostObservation, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: host}, node); err != nil || node.Status.DPU == nil {
			return nil, err
		}
		return node.Status.DPU.Host, nil
	}
}

// idle makes a pod that has a volume as a block device and does no I/O.
func (ns *testNamespace) idle(ctx context.Context, host string) *subject {
	GinkgoHelper()
	s := ns.newSubject(ctx, "snap-failover", host, raw)
	s.raw = true
	s.idles(ctx)
	return s
}

// nothingTaken expects for a time that nothing is taken from any host.
func nothingTaken(ctx context.Context, all []*subject, d time.Duration) {
	GinkgoHelper()
	Consistently(func(g Gomega, ctx context.Context) {
		for _, s := range all {
			g.Expect(s.claim(ctx).Status).To(HaveValue(And(HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Epoch", int64(1)))))
			c, err := conditionOf(s.host, moorv1alpha1.ConditionFailover)(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c).To(Or(BeNil(), HaveValue(HaveField("Status", Not(Equal(metav1.ConditionTrue))))))
		}
	}).WithContext(ctx).WithTimeout(d).WithPolling(tick).Should(Succeed())
}

var _ = Describe("a host that lives", slow, bothModes, func() {
	It("loses the link to its DPU for long, and its plugin stands still: what its pod writes tells that it lives", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.subject(ctx, "host-1")
		resume := during(ctx, "snap-csi-plugin-host-1", bed.Pause, bed.Resume)
		join := linkOf(ctx, "1")
		Eventually(seenOf("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(And(HaveField("Alive", true), HaveField("Evidence", ContainSubstring("silent on the link, and does I/O")))))
		nothingTaken(ctx, []*subject{s}, linkAway)
		resume(ctx)
		join(ctx)
		Eventually(seenOf("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(HaveField("Evidence", ContainSubstring("node plugin answers"))))
		s.stays(ctx)
		s.judge(ctx)
	})

	It("loses the link to its DPU for long, and its pod does no I/O: what its plugin reads then tells that it lives", ci, func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.idle(ctx, "host-1")
		join := linkOf(ctx, "1")
		Eventually(seenOf("host-1")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(HaveValue(And(HaveField("Alive", true), HaveField("Evidence", ContainSubstring("silent on the link, and does I/O")))))
		nothingTaken(ctx, []*subject{s}, linkAway)
		join(ctx)
		s.write(ctx)
		s.stays(ctx)
		s.judge(ctx)
	})

	It("loses the link to its DPU for long, and its storage stands still: heartbeats hold what would be taken, and that is told", func(ctx context.Context) {
		ns := faulty(ctx)
		s := ns.idle(ctx, "host-1")
		resume := during(ctx, "moor-target", bed.Pause, bed.Resume)
		join := linkOf(ctx, "1")
		told(ctx, "host-1", "Held", "perhaps only the link")
		nothingTaken(ctx, []*subject{s}, linkAway)
		resume(ctx)
		join(ctx)
		s.write(ctx)
		s.stays(ctx)
		s.judge(ctx)
	})

	It("is not fenced by what maintenance does", func(ctx context.Context) {
		ns := faulty(ctx)
		all := ns.subjects(ctx, "host-1", "host-2", "host-3")
		seed := *randomSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		random, raised := rand.New(rand.NewPCG(seed, 0)), map[string]int{}
		By("raising false alarms, those of SEED=" + strconv.FormatUint(seed, 10))
		for end := time.Now().Add(*falseAlarms); time.Now().Before(end); {
			a, s := alarms[random.IntN(len(alarms))], all[random.IntN(len(all))]
			raised[a.name]++
			join := a.begin(ctx, strings.TrimPrefix(s.host, "host-"))
			nothingTaken(ctx, all, 500*time.Millisecond+time.Duration(random.Int64N(int64(4500*time.Millisecond))))
			join(ctx)
			nothingTaken(ctx, all, time.Duration(random.Int64N(int64(3*time.Second))))
		}
		AddReportEntry("false alarms", raised)
		for _, s := range all {
			s.stays(ctx)
			s.judge(ctx)
		}
	})
})

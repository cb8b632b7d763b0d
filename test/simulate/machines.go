package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/paths"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/engine"
	"github.com/moor-storage/moor/test/simulate/hardware"
	"github.com/moor-storage/moor/test/simulate/plan"
)

// bmcTimeout bounds each call of a BMC, as the Redfish client does.
const bmcTimeout = 10 * time.Second

// bmcs are those of a host and of its DPU; nil: there is none.
type bmcs struct{ host, dpu *hardware.BMC }

// wireBMCs makes the BMCs of a host, as the plan has them.
func (w *World) wireBMCs(d *hardware.DPU) {
	var b bmcs
	if w.plan.Power == plan.PowerByHost || w.plan.Power == plan.PowerOfBoth {
		b.host = hardware.NewBMC(d, true)
		b.host.Off, b.host.On = func() { w.hostOff(b.host.DPU, "is switched off by its BMC") }, func() { w.bootHost(b.host.DPU.Host) }
	}
	if w.plan.Power == plan.PowerOfDPU || w.plan.Power == plan.PowerOfBoth {
		b.dpu = hardware.NewBMC(d, false)
		b.dpu.Reset = func() { w.reset(b.dpu.DPU, "is reset by its BMC") }
	}
	w.bmcs[d.Host] = b
}

// all are those that there are.
func (b bmcs) all() []*hardware.BMC {
	var out []*hardware.BMC
	for _, one := range []*hardware.BMC{b.host, b.dpu} {
		if one != nil {
			out = append(out, one)
		}
	}
	return out
}

// hostOff takes the power from a host, and with it from a DPU that has all of its own from there.
func (w *World) hostOff(d *hardware.DPU, why string) {
	if why != "" {
		w.Engine.Tell("host "+d.Host, "%s", why)
	}
	d.HostOn = false
	if w.plan.Power == plan.PowerByHost && !d.Lies.OwnPower {
		d.PowerOff()
		w.processOf(d.Name).end()
	}
}

// reset boots a DPU that has power.
func (w *World) reset(d *hardware.DPU, why string) {
	if !d.On {
		return
	}
	w.Engine.Tell(d.Name, "%s", why)
	d.PowerOff()
	d.Resetting = true
	w.processOf(d.Name).end()
	w.Engine.After(rebooting, func() {
		d.Resetting = false
		w.bootDPU(d)
	})
}

// bothDie takes the power from a host and its DPU, for a time.
func (w *World) bothDie(host string, last time.Duration) {
	d := w.cardIn(host)
	w.hostOff(d, "loses its power, with its DPU")
	d.PowerOff()
	w.processOf(d.Name).end()
	for _, b := range w.bmcs[host].all() {
		b.LosePower()
	}
	w.Engine.After(last, func() {
		for _, b := range w.bmcs[host].all() {
			b.Away = false
		}
		w.bootHost(host)
		w.bootDPU(w.cardIn(host))
	})
}

// replaceCard has the host and the DPU lose their power for a time, after which another card is in
// the place of the DPU. Nothing has the BMC of that one on record until all is healed.
func (w *World) replaceCard(host string, last time.Duration) {
	w.played[plan.ReplaceCard]++
	w.bothDie(host, last)
	w.must(w.cardIn(host).Replace())
	if b := w.bmcs[host].dpu; b != nil {
		b.Other = true
	}
}

// swapBMCs has other machines answer for those of a host, for a time.
func (w *World) swapBMCs(host string, last time.Duration) {
	for _, b := range w.bmcs[host].all() {
		w.played[plan.SwapBMC]++
		b.Other = true
		w.Engine.After(last, func() { b.Other = false })
	}
}

// restartStorage ends the storage for a time: no DPU reaches it, and what it had received and
// not executed may be lost.
func (w *World) restartStorage(last time.Duration) {
	w.played[plan.RestartStorage]++
	for _, d := range w.Cards {
		d.LosesWay()
		d.Forgotten()
		w.Engine.After(last, d.FindsWay)
	}
}

// cutLink cuts the link between a host and its DPU, for a time.
func (w *World) cutLink(host string, e plan.Event) {
	w.played[e.What]++
	w.cutOff(linkOf(host), e.For)
}

// linked reports whether a DPU hears its host on the link between them.
func (w *World) linked(d *hardware.DPU) bool { return d.HostOn && !w.down[linkOf(d.Host)] }

// linkOf is the name of the link between a host and its DPU.
func linkOf(host string) string { return "link of " + host }

// populatePower makes the PowerControl of a host.
func (w *World) populatePower(d *hardware.DPU) []client.Object {
	b := w.bmcs[d.Host]
	if b == (bmcs{}) {
		return nil
	}
	of := func(one *hardware.BMC, what string) *moorv1alpha1.BMC {
		if one == nil {
			return nil
		}
		return &moorv1alpha1.BMC{Address: "https://" + what + "." + d.Host, SerialNumber: one.Serial, SecretName: "bmc-" + d.Host}
	}
	meta := metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: d.Host}
	control := &moorv1alpha1.PowerControl{ObjectMeta: meta, Spec: moorv1alpha1.PowerControlSpec{
		Host: of(b.host, "host"), DPU: of(b.dpu, "dpu"), DPUPower: moorv1alpha1.DPUPowerOwn, PowerOn: moorv1alpha1.PowerOnReleased,
	}}
	if w.plan.Power == plan.PowerByHost {
		control.Spec.DPUPower = moorv1alpha1.DPUPowerHost
	}
	meta.Name = "bmc-" + d.Host
	return []client.Object{control, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}}}
}

// keeper has BMCs asked, beside the passes of failover; both nil where there are none.
func (l *life) keeper(clusters hostcluster.Clusters, observer *nodehealth.Observer) (*powerproof.Keeper, *loop) {
	w := l.process.world
	if w.plan.Power == "" {
		return nil, nil
	}
	keeper := powerproof.New(powerproof.Options{
		Host: clusters.Host, Namespace: clusters.Namespace, Clock: bubble{}, After: powerproof.DefaultAfter, Drain: powerproof.DefaultDrain,
		Silent: observer.DPUSilentSince,
		Connect: func(c redfish.Config) (power.Machine, error) {
			what, host, _ := strings.Cut(strings.TrimPrefix(c.Endpoint, "https://"), ".")
			bmc := w.bmcs[host].host
			if what == "dpu" {
				bmc = w.bmcs[host].dpu
			}
			return machine{life: l, bmc: bmc, want: c.Want}, nil
		},
	})
	return keeper, l.run("power", keeper, func(_ *link, e cluster.Event) []reconcile.Request {
		return named(e, kubetest.HostNamespace, "PowerControl")
	})
}

// machine is a BMC as a program calls it.
type machine struct {
	life *life
	bmc  *hardware.BMC
	want power.Identity
}

var _ power.Machine = machine{}

// call asks the BMC. A request may be carried out after its sender has given up.
func (m machine) call(ctx context.Context, kind engine.Kind, what string, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, bmcTimeout)
	defer cancel()
	what = fmt.Sprintf("%s of the BMC %s", what, m.bmc.Serial)
	err := m.life.Call(ctx, kind, what, func() error {
		err := do()
		if kind == engine.Write {
			m.life.Tell("%s: %v", what, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, power.ErrUnreachable, err)
	}
	return nil
}

// Read is what it says. That is so when it is asked, or later.
func (m machine) Read(ctx context.Context) (power.Reading, error) {
	at := time.Now()
	var out power.Reading
	err := m.call(ctx, engine.Read, "asks", func() (err error) {
		out, err = m.bmc.Read()
		return err
	})
	out.At = at
	return out, err
}

// PowerOff asks for that.
func (m machine) PowerOff(ctx context.Context) error {
	return m.ask(ctx, "asks a power-off", m.bmc.Off)
}

// Restart asks for a reset.
func (m machine) Restart(ctx context.Context) error { return m.ask(ctx, "asks a reset", m.bmc.Reset) }

// PowerOn asks for power.
func (m machine) PowerOn(ctx context.Context) error { return m.ask(ctx, "asks a power-on", m.bmc.On) }

func (m machine) ask(ctx context.Context, what string, do func()) error {
	if words := m.want.Refuse(power.Identity{SerialNumber: m.bmc.Is()}); words != "" {
		return fmt.Errorf("%w: %s", power.ErrOtherMachine, words)
	}
	return m.call(ctx, engine.Write, what, func() error { return m.bmc.Ask(do) })
}

// pathGrace and snapAway are the defaults of snap-node-driver.
const (
	pathGrace = 3 * time.Second
	snapAway  = 20 * time.Second
)

// waysKnown is what is known of ways, where they are watched; nil where they are not, or nothing
// comes of it.
func (l *life) waysKnown() exposures.Ways {
	if !l.process.world.plan.Ways {
		return nil
	}
	l.ways = paths.NewWays(hardware.DrainBound, bubble{})
	if l.process.world.blind {
		return nil
	}
	return l.ways
}

// watchWays has the ways of a DPU watched.
func (l *life) watchWays(store *attachments.Store, shown *exposures.Exposures) {
	if l.ways == nil {
		return
	}
	beats := &metronome{due: make(chan time.Time, 1)}
	watcher := paths.New(paths.Options{
		Devices: store.Devices, Services: shown, Grace: pathGrace, Away: snapAway, Timeout: passTimeout, Ways: l.ways, Clock: beats,
		Changed: func() {
			if l.heartDue != nil {
				l.heartDue()
			}
		},
	})
	ctx := ctrl.LoggerInto(l.Context(), logr.Discard())
	l.Go("paths", func() { _ = watcher.Start(ctx) }, func() {})
	l.process.world.pace(l, beats)
}

// metronome is a clock whose ticker is the engine's: so a look never falls on a step.
type metronome struct {
	ticking
	due chan time.Time
}

// NewTicker is the ticker.
func (m *metronome) NewTicker(time.Duration) clock.Ticker { return m }

// C tells when it is time.
func (m *metronome) C() <-chan time.Time { return m.due }

// Stop does nothing: it ends with the process.
func (*metronome) Stop() {}

// pace has the ways of a DPU looked at each second, while its program runs.
func (w *World) pace(l *life, beats *metronome) {
	w.Engine.After(time.Second, func() {
		if !l.Alive() {
			return
		}
		if !l.Stalled() {
			select {
			case beats.due <- time.Now():
			default:
			}
		}
		w.pace(l, beats)
	})
}

// tellWays adds to what a DPU says of itself which ways are lost.
func (l *life) tellWays(d *hardware.DPU, out *moorv1alpha1.DPUState) {
	if l.ways == nil {
		return
	}
	out.SNAPReady = d.SNAP
	out.LostPaths, out.AllPathsLost = l.ways.Lost()
}

// tellWays writes what a DPU says of its ways, if it gives no lease, and has the host cluster have
// that too.
func (w *World) tellWays(d *hardware.DPU) {
	if !w.plan.Ways {
		return
	}
	there, found := cluster.Find[*moorv1alpha1.DPUStorageNode](w.DPU, "", d.Name)
	if !w.plan.Leases && found && w.speaks(d) {
		next := there.DeepCopy()
		w.processOf(d.Name).life.tellWays(d, next.Status.DPU)
		if !equality.Semantic.DeepEqual(there, next) {
			w.Engine.Tell(d.Name, "says that it has lost %v", next.Status.DPU.LostPaths)
			w.must(w.DPU.UpdateStatus(next))
			there = next
		}
	}
	here, also := cluster.Find[*moorv1alpha1.DPUStorageNode](w.Host, "", d.Host)
	if !found || !also || there.Status.DPU == nil || w.down[w.Host.Name] || w.down[w.DPU.Name] || equality.Semantic.DeepEqual(here.Status.LostPaths(), there.Status.LostPaths()) {
		return
	}
	next := here.DeepCopy()
	next.Status.DPU = there.Status.DPU.DeepCopy()
	w.must(w.Host.UpdateStatus(next))
}

// loseWay cuts the DPU of the host where a volume is wanted off from the storage, or all, for a time.
func (w *World) loseWay(e plan.Event) {
	for _, d := range w.Cards {
		if e.Who == "" || d.Host != "" && d.Host == w.wanted[e.Who] {
			d.LosesWay()
			w.Engine.After(e.For, d.FindsWay)
		}
	}
}

// lostWay reports whether the host cluster knows that a host's DPU has lost its way to a volume.
func (w *World) lostWay(volume, host string) bool {
	n, found := cluster.Find[*moorv1alpha1.DPUStorageNode](w.Host, "", host)
	return found && n.Status.LostPath(volume) != nil
}

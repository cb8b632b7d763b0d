package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
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
		b.host.Off, b.host.On = func() { w.hostOff(d, "is switched off by its BMC") }, func() { w.bootHost(d.Host) }
	}
	if w.plan.Power == plan.PowerOfDPU || w.plan.Power == plan.PowerOfBoth {
		b.dpu = hardware.NewBMC(d, false)
		b.dpu.Reset = func() { w.reset(d, "is reset by its BMC") }
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
	d := w.card("dpu-" + host)
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
		w.bootDPU(d)
	})
}

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
	if words := m.want.Refuse(power.Identity{SerialNumber: m.bmc.Serial}); words != "" {
		return fmt.Errorf("%w: %s", power.ErrOtherMachine, words)
	}
	return m.call(ctx, engine.Write, what, func() error { return m.bmc.Ask(do) })
}

package simulate

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/engine"
	"github.com/moor-storage/moor/test/simulate/hardware"
	"github.com/moor-storage/moor/test/simulate/judge"
	"github.com/moor-storage/moor/test/simulate/plan"
)

// World is everything that is played.
type World struct {
	Engine    *engine.Engine
	Host, DPU *cluster.Server
	Storage   *hardware.Storage
	Judge     *judge.Judge
	Cards     []*hardware.DPU
	// Words are what an attachment says: its message, unless a test takes that away.
	Words func(*storagev1alpha1.DPUVolumeAttachment) string

	plan      plan.Plan
	dice      *rand.Rand
	faults    engine.Faults
	calm      bool
	down      map[string]bool
	processes []*process
	// wanted is on which host a volume is wanted; "" for none.
	wanted map[string]string
	// beats are the last heartbeats of hosts, with their kubelets, and of DPUs, as their Leases tell.
	beats map[string]time.Time
	// misnamed are the hosts whose DPU a person has named wrongly.
	misnamed map[string]bool
	// dir has the files of the DPUs.
	dir string
	// restoring: persons restore a cluster, and are not through with the steps.
	restoring bool
	// barred: DPUs may neither read nor write in their cluster.
	barred bool
	// dark: hosts and DPUs stay off.
	dark bool
	// boots is how often each host has started.
	boots map[string]int
	// blind: drivers do not know of ways that are lost: a bug, planted.
	blind bool
	// bmcs are those of each host.
	bmcs map[string]bmcs
	// played counts what has happened that not every schedule has.
	played map[string]int
}

// newWorld is the world of a plan before anything happens. Files of DPUs are in dir.
func newWorld(seed uint64, p plan.Plan, dir string) (*World, error) {
	e := engine.New(seed)
	w := &World{
		Engine: e, Host: cluster.New("host cluster", time.Now), DPU: cluster.New("DPU cluster", time.Now), Judge: judge.New(),
		Words: func(a *storagev1alpha1.DPUVolumeAttachment) string { return a.Status.Message },
		plan:  p, dice: e.Dice("users"), faults: p.Faults, calm: p.Prompt, down: map[string]bool{}, wanted: map[string]string{}, beats: map[string]time.Time{}, misnamed: map[string]bool{}, dir: dir, boots: map[string]int{}, played: map[string]int{}, bmcs: map[string]bmcs{},
	}
	w.Storage = hardware.NewStorage(e, w.Judge, p.Revokes, p.Epochs)
	for _, host := range plan.HostNames[:p.Hosts] {
		card, err := w.plug(host, "dpu-"+host)
		if err == nil {
			err = card.Boot()
		}
		if err != nil {
			return nil, err
		}
		w.wireBMCs(card)
	}
	w.Judge.Writes = func(dpu, volume string) bool {
		card := w.card(dpu)
		return card.HostOn && w.Storage.Open(volume, dpu)
	}
	if err := w.populate(); err != nil {
		return nil, err
	}
	w.Host.Changed = func(e cluster.Event) { w.changed(w.Host, e) }
	w.DPU.Changed = func(e cluster.Event) {
		w.Judge.Changed(e)
		w.receipts(e)
		w.changed(w.DPU, e)
	}
	w.process("hosts", w.hostController)
	w.process("hosts-2", w.hostController)
	w.processOf("hosts-2").held = true
	w.process("storage", w.controller)
	w.process("attacher", w.attacherOfVendor)
	for _, card := range w.Cards {
		w.drive(card)
	}
	return w, nil
}

// plug puts a card into a host.
func (w *World) plug(host, name string) (*hardware.DPU, error) {
	card, err := hardware.NewDPU(w.Engine, w.Storage, name, host, filepath.Join(w.dir, name))
	if err == nil {
		w.Cards = append(w.Cards, card)
	}
	return card, err
}

// drive has snap-node-driver run on a card.
func (w *World) drive(card *hardware.DPU) {
	w.process(card.Name, w.nodeDriver(card))
	w.processOf(card.Name).machine = card
}

// watch plays what a card and its host do from now on.
func (w *World) watch(card *hardware.DPU) {
	w.beat(card)
	w.look(card)
	w.guard(card)
}

func (w *World) process(name string, start func(*life)) {
	w.processes = append(w.processes, &process{name: name, world: w, dice: w.Engine.Dice(name), start: start})
}

func (w *World) card(name string) *hardware.DPU {
	i := slices.IndexFunc(w.Cards, func(d *hardware.DPU) bool { return d.Name == name })
	return w.Cards[i]
}

// cardIn is the one in a host.
func (w *World) cardIn(host string) *hardware.DPU {
	i := slices.IndexFunc(w.Cards, func(d *hardware.DPU) bool { return d.Host == host })
	return w.Cards[i]
}

// hosts are all that there are.
func (w *World) hosts() []string { return plan.HostNames[:w.plan.Hosts] }

func (w *World) processOf(name string) *process {
	i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == name })
	return w.processes[i]
}

// changed has a change sent to each process that watches.
func (w *World) changed(s *cluster.Server, e cluster.Event) {
	for _, p := range w.processes {
		if p.life == nil || !p.life.Alive() {
			continue
		}
		for _, k := range p.life.links {
			if k.server == s {
				p.life.send(k, e.Key.Kind)
			}
		}
	}
}

// populate makes what is there before anything is attached.
func (w *World) populate() error {
	var there []client.Object
	vendor := kubetest.CSIDriver("vendor", nil)
	if w.plan.Revokes {
		vendor.Annotations = map[string]string{storagev1alpha1.AnnotationRevokes: "true"}
	}
	there = append(there, vendor)
	var here []client.Object
	if err := w.populateHosts(); err != nil {
		return err
	}
	for _, name := range plan.VolumeNames[:w.plan.Volumes] {
		bound := kubetest.DPUVolume(name, corev1.ReadWriteOnce)
		bound.Spec.Replication = &storagev1alpha1.Replication{MaxShares: int32(w.plan.Hosts), Failover: storagev1alpha1.FailoverFence}
		bound.Status.Phase = storagev1alpha1.DPUVolumeBound
		here = append(here, bound, kubetest.PVC(name, "pv-"+name), kubetest.PV("pv-"+name, name, name))
		v := kubetest.Volume(name, "policy")
		v.Labels = kubetest.MirrorOfFirst(name).Labels
		v.Spec.Volume = storagev1alpha1.VolumeSource{
			ID: name, StorageVendorName: "vendor", StorageVendorPluginName: hardware.Plugin, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			CSIReference: storagev1alpha1.CSIReference{CSIDriverName: driver, PVCRef: &storagev1alpha1.ObjectRef{Name: name + "-pvc"}},
		}
		v.Status.State = storagev1alpha1.VolumeAvailable
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject(name + "-pvc"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name}}
		pv := kubetest.VendorPV("pv-"+name, pvc.Name, driver, corev1.PersistentVolumeReclaimDelete)
		pv.Spec.AccessModes, pv.Spec.VolumeMode, pv.Spec.CSI.VolumeHandle = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, ptr.To(corev1.PersistentVolumeBlock), name
		there = append(there, v, pvc, pv)
	}
	for _, d := range w.Cards {
		here = append(here, w.populatePower(d)...)
	}
	for s, objects := range map[*cluster.Server][]client.Object{w.Host: here, w.DPU: there} {
		for _, o := range objects {
			if err := s.Create(o); err != nil {
				return fmt.Errorf("populate the %s: %w", s.Name, err)
			}
		}
		s.Settle()
	}
	return nil
}

// happen lets an event of the plan happen.
func (w *World) happen(e plan.Event) {
	w.Engine.Tell("", "%s", e)
	if host, ok := strings.CutPrefix(e.Who, "dpu-"); ok {
		e.Who = w.cardIn(host).Name // it may be another one by now
	}
	switch e.What {
	case plan.Move:
		w.wanted[e.Who] = e.Where
	case plan.Kill:
		w.processOf(e.Who).end()
	case plan.Stall:
		if l := w.processOf(e.Who).life; l != nil {
			l.Stall(e.For)
		}
	case plan.HostDies:
		w.hostOff(w.cardIn(e.Who), "")
		w.Engine.After(e.For, func() { w.bootHost(e.Who) })
	case plan.DPUDies:
		card := w.card(e.Who)
		card.PowerOff()
		w.processOf(e.Who).end()
		w.Engine.After(e.For, func() { w.bootDPU(card) })
	case plan.Twice:
		if w.restoring {
			return // what grants is stopped
		}
		w.processOf("hosts-2").begin()
		w.Engine.After(e.For, w.processOf("hosts-2").hold)
	case plan.EndSNAP:
		card := w.card(e.Who)
		card.EndSNAP()
		w.Engine.After(e.For, func() { w.must(card.StartSNAP()) })
	case plan.Restore, plan.RestoreHosts, plan.RestoreBoth:
		w.backUp(e)
	case plan.Cut, plan.Vanish, plan.LoseWay, plan.BothDie, plan.ReplaceCard, plan.OtherCard, plan.NameWrongly, plan.CutLink, plan.Isolate, plan.RestartStorage, plan.SwapBMC:
		w.sever(e)
	default:
		w.happenByPersons(e)
	}
}

// sever lets an event of the plan happen by which something is out of reach; of a volume that is wanted
// nowhere none happens.
func (w *World) sever(e plan.Event) {
	host := w.wanted[e.Who]
	switch {
	case e.What == plan.Cut:
		w.cutOff(e.Who, e.For)
	case e.What == plan.LoseWay:
		w.loseWay(e)
	case e.What == plan.RestartStorage:
		w.restartStorage(e.For)
	case host == "":
	case e.What == plan.Vanish:
		w.cutOff(w.cardIn(host).Name, e.For)
		w.cutOff("host "+host, e.For)
	case e.What == plan.BothDie:
		w.bothDie(host, e.For)
	case e.What == plan.ReplaceCard:
		w.replaceCard(host, e.For)
	case e.What == plan.OtherCard:
		w.replaceByOther(host, e)
	case e.What == plan.NameWrongly:
		w.nameWrongly(host, e)
	case e.What == plan.SwapBMC:
		w.swapBMCs(host, e.For)
	case e.What == plan.CutLink:
		w.cutLink(host, e)
	case e.What == plan.Isolate:
		w.cutLink(host, e)
		w.cutOff("host "+host, e.For)
	}
}

// cutOff cuts something off from the API servers, or one of these from all, for a time.
func (w *World) cutOff(who string, last time.Duration) {
	w.down[who] = true
	w.Engine.After(last, func() { delete(w.down, who) })
}

// must reports what keeps the world from being played.
func (w *World) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the simulation itself failed: %v", err))
	}
}

// bootHost starts a host that has lost power.
func (w *World) bootHost(name string) {
	card := w.cardIn(name)
	if card.HostOn || w.dark {
		return
	}
	w.Engine.Tell("host "+name, "boots")
	card.HostOn = true
	w.boots[name]++
	for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
		w.Judge.Look(volume)
	}
	if w.plan.Power == plan.PowerByHost {
		w.bootDPU(card)
	}
}

// bootDPU starts a DPU that has lost power.
func (w *World) bootDPU(card *hardware.DPU) {
	if card.On || card.Pulled || card.Shelved || card.Resetting || w.dark || w.plan.Power == plan.PowerByHost && !card.HostOn {
		return
	}
	w.Engine.Tell(card.Name, "boots")
	w.must(card.Boot())
	w.processOf(card.Name).again()
}

// heal ends all that is wrong, for good.
func (w *World) heal() {
	w.Engine.Tell("", "all is healed")
	w.calm, w.faults = true, engine.Faults{}
	clear(w.down)
	for _, card := range w.Cards {
		for _, b := range w.bmcs[card.Host].all() {
			b.Well, b.Away, b.Other = true, false, false
		}
		if card.Host == "" {
			w.bootElsewhere(card)
		} else {
			w.bootHost(card.Host)
			w.bootDPU(card)
		}
		w.must(card.StartSNAP())
		card.FindsWay()
	}
	w.processOf("hosts-2").hold()
	w.operate()
	for _, p := range w.processes {
		if p.life != nil {
			p.life.Stall(0)
		}
		if p.name != "hosts-2" {
			p.begin()
		}
	}
}

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/paths"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/engine"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

// process is a program on a machine. It has many lives.
type process struct {
	name  string
	world *World
	dice  *rand.Rand
	start func(*life)
	// held: it is not started again by itself.
	held bool
	// missing: it is never started: a bug, planted.
	missing bool
	// machine is the DPU that it runs on; nil if that is always there.
	machine *hardware.DPU
	life    *life
}

// life is a process from its start to its end. It begins with empty memory.
type life struct {
	*engine.Actor
	process *process
	links   []*link
	loops   []*loop
	// queued asks for the passes that the process itself has asked for.
	queued func()
	// ways are those of a DPU to the storage; nil: they are not watched. heartDue asks for a beat.
	ways     *paths.Ways
	heartDue func()
}

// Tell adds a line to the story.
func (l *life) Tell(format string, args ...any) {
	l.process.world.Engine.Tell(l.Name, format, args...)
}

// link is the way of a process to one API server.
type link struct {
	server *cluster.Server
	view   *cluster.View
	life   *life
	// kinds are those that are watched; none: all.
	kinds []string
	// due is when the last change that was sent arrives, by kind.
	due map[string]time.Duration
}

// cut reports whether the server is not reached.
func (k *link) cut() bool {
	w := k.life.process.world
	barred := w.barred && k.life.process.machine != nil
	return w.down[k.server.Name] || w.down[k.life.Name] || barred
}

// told is what the story says of an object after a write.
func (k *link) told(key cluster.Key) string { return summary(k.server, key) }

// begin starts the process, if it does not run.
func (p *process) begin() {
	if p.missing || p.machine != nil && !p.machine.On || p.life != nil && p.life.Alive() {
		return
	}
	p.held = false
	if p.world.down[p.name] || p.world.down[p.world.Host.Name] || p.world.down[p.world.DPU.Name] {
		p.world.Engine.After(time.Second, p.again) // its caches do not fill
		return
	}
	l := &life{process: p}
	l.Actor = p.world.Engine.NewActor(p.name, p.dice, &p.world.faults, p.end)
	p.life = l
	p.start(l)
	for _, k := range l.links {
		for _, kind := range k.view.Kinds() {
			for range k.view.Behind(kind) {
				l.send(k, kind)
			}
			for _, o := range k.view.Objects(kind) {
				l.wake(k, cluster.Event{Key: cluster.KeyOf(o), Object: o})
			}
		}
	}
}

// end kills the process. It is started again after a while, unless it is held.
func (p *process) end() {
	if p.life == nil || !p.life.Alive() {
		return
	}
	p.life.Kill()
	if p.machine != nil && p.machine.Watched() { // Linux closes its device
		p.machine.Feed(p.world.Engine.Elapsed() + watchdogTimeout)
	}
	p.world.Engine.After(time.Duration(p.dice.Int64N(int64(8*time.Second)))+100*time.Millisecond, p.again)
}

// again starts the process anew, if it is to run and does not.
func (p *process) again() {
	if !p.held && (p.life == nil || !p.life.Alive()) {
		p.world.Engine.Tell(p.name, "starts")
		p.begin()
	}
}

// hold ends the process until it is begun.
func (p *process) hold() {
	p.end()
	p.held = true
}

// watch gives the process a view of some kinds of a server, or all, some changes old.
func (l *life) watch(s *cluster.Server, indexes []kube.Index, kinds ...string) *link {
	behind := 0
	if l.process.dice.IntN(4) == 0 {
		behind = l.process.dice.IntN(6)
	}
	k := &link{server: s, view: s.NewView(behind, indexes), life: l, kinds: kinds, due: map[string]time.Duration{}}
	l.links = append(l.links, k)
	return k
}

// send lets the next change of a kind arrive at a process, later than all before it.
func (l *life) send(k *link, kind string) {
	if len(k.kinds) > 0 && !slices.Contains(k.kinds, kind) {
		return
	}
	e, dice := l.process.world.Engine, l.process.dice
	took := time.Duration(dice.Int64N(int64(50 * time.Millisecond)))
	switch roll := dice.IntN(100); {
	case l.process.world.calm:
	case roll < 2:
		took = time.Duration(dice.Int64N(int64(20 * time.Second)))
	case roll < 10:
		took = time.Duration(dice.Int64N(int64(2 * time.Second)))
	}
	k.due[kind] = max(k.due[kind]+1, e.Elapsed()+took)
	e.After(k.due[kind]-e.Elapsed(), func() { l.deliver(k, kind) })
}

// deliver lets the process see the next change of a kind, once it is reached.
func (l *life) deliver(k *link, kind string) {
	if !l.Alive() {
		return
	}
	if k.cut() {
		l.process.world.Engine.After(500*time.Millisecond, func() { l.deliver(k, kind) })
		return
	}
	if e, ok := k.view.Next(kind); ok {
		l.wake(k, e)
	}
}

// wake has the reconcilers look at what a change concerns.
func (l *life) wake(k *link, e cluster.Event) {
	for _, loop := range l.loops {
		for _, r := range loop.of(k, e) {
			loop.add(r, time.Duration(l.process.dice.Int64N(int64(5*time.Millisecond))))
		}
	}
}

// loop is a reconciler with its queue; it makes one pass at a time.
type loop struct {
	life *life
	name string
	r    reconcile.Reconciler
	of   func(*link, cluster.Event) []reconcile.Request
	// last is the longest pause after a failure.
	last time.Duration

	due      map[reconcile.Request]time.Duration
	failures map[reconcile.Request]int
	busy     bool
}

// run adds a reconciler to the process. of says which requests a change concerns.
func (l *life) run(name string, r reconcile.Reconciler, of func(*link, cluster.Event) []reconcile.Request) *loop {
	out := &loop{
		life: l, name: name, r: kube.Retrying(r), of: of, last: 15 * time.Second,
		due: map[reconcile.Request]time.Duration{}, failures: map[reconcile.Request]int{},
	}
	l.loops = append(l.loops, out)
	return out
}

// add asks for a pass after a time, or sooner if that was asked for.
func (o *loop) add(r reconcile.Request, after time.Duration) {
	e := o.life.process.world.Engine
	at := e.Elapsed() + after
	if was, asked := o.due[r]; asked && was <= at {
		return
	}
	o.due[r] = at
	e.After(after, o.next)
}

// next begins the pass that is due first, if none is under way.
func (o *loop) next() {
	if o.busy || !o.life.Alive() {
		return
	}
	var first reconcile.Request
	at := o.life.process.world.Engine.Elapsed() + 1
	for r, due := range o.due {
		if due < at || due == at && r.String() < first.String() {
			first, at = r, due
		}
	}
	if first.Name == "" {
		return
	}
	delete(o.due, first)
	o.busy = true
	var result ctrl.Result
	var err error
	ctx := ctrl.LoggerInto(context.Background(), logr.Discard())
	o.life.Go(o.name+" "+first.Name, func() { result, err = o.r.Reconcile(ctx, first) }, func() {
		o.busy = false
		o.after(first, result, err)
		if o.life.queued != nil {
			o.life.queued()
		}
		o.next()
	})
}

// after asks for the pass that follows one.
func (o *loop) after(r reconcile.Request, result ctrl.Result, err error) {
	if err != nil {
		pause := min(o.last, 100*time.Millisecond<<min(o.failures[r], 10))
		o.failures[r]++
		o.add(r, pause)
		return
	}
	delete(o.failures, r)
	if result.RequeueAfter > 0 {
		o.add(r, result.RequeueAfter)
	}
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// errCutOff is the error of a call to an API server that is not reached.
var errCutOff = errors.New("no route to the API server")

// api is one API server as a process uses it: reads are answered by its view, writes by
// the server, each when the engine lets it.
type api struct {
	client.Client // nil: what is not implemented here, no reconciler uses
	life          *life
	link          *link
}

// live reads from the server itself.
type live struct{ api }

func (l *life) cluster(k *link) kube.Cluster {
	a := api{life: l, link: k}
	return kube.Cluster{Client: a, Live: live{a}}
}

// Get reads the view.
func (a api) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return a.link.view.Get(k, o)
}

// List reads the view.
func (a api) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	return a.link.view.List(list, options...)
}

// Get reads the server.
func (l live) Get(ctx context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	got := o.DeepCopyObject().(client.Object)
	key := cluster.KeyOf(got)
	err := l.call(ctx, engine.Read, fmt.Sprintf("reads %s %s", key.Kind, k.Name), func() error { return l.link.server.Get(k, got) })
	if err == nil {
		cluster.Assign(o, got)
	}
	return err
}

// List reads the server.
func (l live) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	got := list.DeepCopyObject().(client.ObjectList)
	err := l.call(ctx, engine.Read, fmt.Sprintf("lists %T", list), func() error { return l.link.server.List(got, options...) })
	if err == nil {
		cluster.Assign(list, got)
	}
	return err
}

// call has the server asked, if it is reached then.
func (a api) call(ctx context.Context, kind engine.Kind, what string, do func() error) error {
	sent := a.link.server.Restores()
	return a.life.Call(ctx, kind, what, func() error {
		if a.link.cut() || a.link.server.Restores() != sent {
			return errCutOff
		}
		return do()
	})
}

// write has an object written, as it is now.
func (a api) write(ctx context.Context, verb string, o client.Object, do func(client.Object) error) error {
	sent := o.DeepCopyObject().(client.Object)
	key := cluster.KeyOf(o)
	what := fmt.Sprintf("%s %s", verb, key)
	err := a.call(ctx, engine.Write, what, func() error {
		err := do(sent)
		if err == nil {
			a.life.Tell("%s%s", what, a.link.told(key))
		} else {
			a.life.Tell("%s: %v", what, err)
		}
		return err
	})
	if err == nil {
		cluster.Assign(o, sent)
	}
	return err
}

// Create makes an object.
func (a api) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return a.write(ctx, "creates", o, a.link.server.Create)
}

// Update replaces an object.
func (a api) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return a.write(ctx, "updates", o, a.link.server.Update)
}

// Patch merges into an object.
func (a api) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	return a.write(ctx, "patches", o, func(o client.Object) error { return a.link.server.Patch(o, p.Type(), data) })
}

// Delete deletes an object.
func (a api) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return a.write(ctx, "deletes", o, func(o client.Object) error { return a.link.server.Delete(o, options...) })
}

// Status writes statuses.
func (a api) Status() client.SubResourceWriter { return status{api: a} }

type status struct {
	client.SubResourceWriter // nil
	api                      api
}

// Update replaces a status.
func (s status) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.api.write(ctx, "updates status of", o, s.api.link.server.UpdateStatus)
}

// Patch merges into a status.
func (s status) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	return s.api.write(ctx, "patches status of", o, func(o client.Object) error { return s.api.link.server.PatchStatus(o, p.Type(), data) })
}

// Package snapemulator is an emulated SNAP service: the JSON-RPC of SNAP and SPDK on
// a unix socket, the rules that SNAP keeps (package model), a data path, and
// the sysfs and device tree in which a host finds what it is shown.
//
// What makes it more than a fake: detaching a namespace ends the host's I/O
// before the answer is sent, and every accepted write is recorded in the write
// log, in one sequence over all emulators that share it. So a test can prove
// from outside that an old host no longer writes.
//
// It never decides who may use a volume.
package snapemulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/reference/snapemulator/hosttree"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/writelog"
)

// DefaultVFs is how many virtual functions an emulator has by default.
const DefaultVFs = 16

// Options say what an emulator is.
type Options struct {
	// Name tells this DPU from others: lower-case letters, digits and
	// dashes, at most writelog.MaxName bytes.
	Name string
	// Socket is the path of the unix socket, at most 107 bytes.
	Socket string
	// PFs is the number of static physical functions, 1 if it is 0. VFs is the
	// number of virtual functions of the first; 0 means none.
	PFs, VFs int
	// Hotplug is what it offers of functions that are plugged in at run time.
	Hotplug Hotplug
	// SysfsRoot and DevRoot are the directories of the host's view; either
	// may be empty, then that half of the view is not made.
	SysfsRoot, DevRoot string
	// MediumLogDir holds the logs of accepted writes, of reads, and of what is shown to the
	// host; empty records none.
	MediumLogDir string
	// FabricDir holds what can be reached by NVMe over Fabrics: the file
	// <nqn>.img is the one namespace of that subsystem. All emulators that are
	// given the same directory reach the same storage; empty: none is there.
	FabricDir string
	// IOTimeout is how long I/O of a bdev over a block target waits for a target
	// that is out of reach; 0 means blocktarget.DefaultIOTimeout.
	IOTimeout time.Duration
	// DataPath makes the devices; nil shows the files behind the bdevs
	// themselves, which needs no privileges but cannot fence. The emulator
	// closes it.
	DataPath datapath.DataPath
	Log      logr.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
	// NewUUID may be nil: random ones.
	NewUUID func() string
	// Clock may be nil: the machine's.
	Clock clock.WithDelayedExecution
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func (o *Options) complete() error {
	if len(o.Name) > writelog.MaxName || !nameForm.MatchString(o.Name) {
		return fmt.Errorf("emulator name %q: use at most %d lower-case letters, digits and dashes", o.Name, writelog.MaxName)
	}
	if err := o.Hotplug.validate(); err != nil {
		return err
	}
	if o.DataPath == nil {
		o.DataPath = datapath.PlainPath{}
	}
	if o.NewUUID == nil {
		o.NewUUID = uuid.NewString
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// Emulator is one emulated DPU's SNAP service.
type Emulator struct {
	opts    Options
	log     logr.Logger
	methods map[string]handler
	faults  *fault.Set
	metrics *metrics
	// showLog is nil where what is shown is not recorded.
	showLog  *showlog.Log
	started  time.Time
	listener *net.UnixListener

	// mu orders all changes; it is held while devices are made and fenced.
	mu       sync.Mutex
	model    *model.Model
	stores   map[string]*datapath.Store
	shown    []*hosttree.Shown
	kept     []*kept
	mounts   map[*model.FSDevice]FileSystem
	tree     *hosttree.Tree
	linkDown bool
	closed   bool
	// deaf is true while the host does not answer to its PCI switch.
	deaf bool
	// settling is true while the host is at work on the switch; plugged is
	// closed, and replaced, when it has done something there.
	settling bool
	plugged  chan struct{}
}

// New makes an emulator in the state of a fresh start: functions, but no
// namespaces and no bdevs; what an earlier one left in its roots is removed.
// Clients can connect when it returns, and are answered while Run runs.
func New(o Options) (*Emulator, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m, err := o.newModel()
	if err != nil {
		return nil, fmt.Errorf("start emulator %s: %w", o.Name, err)
	}
	e := &Emulator{
		opts: o, log: o.Log, methods: methodTable(o.Hotplug), faults: fault.NewSet(), started: o.Clock.Now(),
		model: m, stores: map[string]*datapath.Store{}, plugged: make(chan struct{}),
		mounts: map[*model.FSDevice]FileSystem{},
	}
	e.metrics = newMetrics(o.Metrics, e.methods)
	if e.listener, err = unixsocket.Listen(o.Socket); err != nil {
		return nil, err
	}
	if o.MediumLogDir != "" {
		e.showLog, err = showlog.Open(o.MediumLogDir, o.Name)
	}
	if err == nil {
		e.kept, err = o.findKept(m)
	}
	if err == nil {
		e.tree, err = hosttree.New(o.SysfsRoot, o.DevRoot, m, held(e.kept))
	}
	if err != nil {
		e.listener.Close()
		return nil, errors.Join(err, e.closeShowLog())
	}
	return e, nil
}

// Run answers requests until ctx ends, then closes the emulator. It returns
// nil after an orderly end.
func (e *Emulator) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.resettle(ctx)
	watched := make(chan error, 1)
	go func() { watched <- e.tree.Watch(ctx, func() { e.rescan(ctx) }) }()
	err := e.serve(ctx, e.listener)
	cancel()
	return errors.Join(err, <-watched, e.Close())
}

// Close takes every namespace away from the host, fenced, and gives back all
// that the emulator holds. It can be called again.
func (e *Emulator) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.wakePlugWaiters()
	e.faults.Clear()
	e.listener.Close()
	e.hideFS(nil)
	var err error
	if _, keeps := e.opts.DataPath.(datapath.Keeper); !keeps {
		e.hide(e.shown)
		err = e.tree.Clear()
	}
	e.shown, e.kept = nil, nil
	err = errors.Join(err, e.opts.DataPath.Close())
	for _, s := range e.stores {
		s.Close()
	}
	return errors.Join(err, e.closeShowLog())
}

// changed applies a change of the model to the host's view, unless err.
func (e *Emulator) changed(ctx context.Context, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return true, e.apply(ctx)
}

// rescan applies what the host wrote into its sysfs tree.
func (e *Emulator) rescan(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !e.tree.ReadBindings() {
		return
	}
	if err := e.apply(ctx); err != nil {
		e.log.Error(err, "apply the host's driver bindings")
	}
}

// apply brings devices and tree to what the model says the host sees. What
// goes is fenced first of all.
func (e *Emulator) apply(ctx context.Context) error {
	var keep, gone []*hosttree.Shown
	wanted := e.wanted()
	for _, s := range e.shown {
		if v, ok := wanted[s.Namespace]; ok && v.Function == s.Function {
			s.Visible = v
			keep = append(keep, s)
			delete(wanted, s.Namespace)
		} else {
			gone = append(gone, s)
		}
	}
	e.hide(gone)
	e.shown = keep
	e.sortKept(wanted)
	var failures error
	for _, v := range e.model.Visible() {
		if _, missing := wanted[v.Namespace]; !missing {
			continue
		}
		s, err := e.show(ctx, v)
		if err != nil {
			failures = errors.Join(failures, err)
			continue
		}
		e.shown = append(e.shown, s)
	}
	for _, s := range e.shown {
		s.Device.Pause(s.Paused)
	}
	failures = errors.Join(failures, e.applyFS(ctx))
	e.metrics.visible.Set(float64(len(e.shown)))
	return errors.Join(failures, e.tree.Render(e.model, e.shown))
}

// wanted returns what the host is to see: nothing while the link is cut, and
// nothing of a function whose driver is unbound.
func (e *Emulator) wanted() map[*model.Namespace]model.Visible {
	out := map[*model.Namespace]model.Visible{}
	for _, v := range e.model.Visible() {
		if !e.linkDown && e.tree.IsBound(v.Function) {
			out[v.Namespace] = v
		}
	}
	return out
}

func (e *Emulator) show(ctx context.Context, v model.Visible) (*hosttree.Shown, error) {
	b := v.Namespace.Bdev
	if err := e.recordShown(b); err != nil {
		return nil, err
	}
	device, err := e.device(ctx, v, datapath.Target{
		Name: b.Name, Size: b.Size(), ReadOnly: b.ReadOnly, Backing: e.stores[b.Name], File: b.Filename,
		Function: v.Function.VUID, NSID: v.Namespace.NSID,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("show bdev %s at %s: %w", b.Name, v.Function.BDF, err), e.recordHidden(b))
	}
	e.log.Info("namespace shown", "device", b.Name, "function", v.Function.BDF, "nsid", v.Namespace.NSID)
	return &hosttree.Shown{Visible: v, Device: device}, nil
}

// hide ends the I/O of every one of gone before it gives back any device.
func (e *Emulator) hide(gone []*hosttree.Shown) {
	e.fence(gone)
	for _, s := range gone {
		if err := e.recordHidden(s.Namespace.Bdev); err != nil {
			e.log.Error(err, "record that a namespace is not shown any more")
		}
		e.log.Info("namespace fenced", "device", s.Namespace.Bdev.Name, "function", s.Function.BDF)
		if err := s.Device.Detach(); err != nil {
			// The fence holds; a device that lingers is found at the next start.
			e.log.Error(err, "give back a fenced device", "device", s.Namespace.Bdev.Name)
		}
	}
}

// subject is how the log of what is shown names the volume behind a bdev.
func subject(b *model.Bdev) string {
	if b.Target != nil {
		return b.Target.Volume
	}
	return filepath.Base(b.Filename)
}

func (e *Emulator) closeShowLog() error {
	if e.showLog == nil {
		return nil
	}
	return e.showLog.Close()
}

func (e *Emulator) recordShown(b *model.Bdev) error {
	if e.showLog == nil {
		return nil
	}
	return e.showLog.Shown(subject(b))
}

func (e *Emulator) recordHidden(b *model.Bdev) error {
	if e.showLog == nil {
		return nil
	}
	return e.showLog.Hidden(subject(b))
}

// fenceGrace is how long the fence lets I/O in flight end by itself. Only a
// target that is out of reach takes longer; then the I/O fails.
const fenceGrace = time.Second

// fence ends the I/O of all of them, and returns when it has ended.
func (e *Emulator) fence(gone []*hosttree.Shown) {
	for _, s := range gone {
		defer time.AfterFunc(fenceGrace, e.stores[s.Namespace.Bdev.Name].Interrupt).Stop()
	}
	for _, s := range gone {
		s.Device.Fence()
	}
}

// ticks is the time since the start in nanoseconds.
func (e *Emulator) ticks() int64 { return e.opts.Clock.Since(e.started).Nanoseconds() }

// freeName returns the first of prefix0, prefix1, ... that no bdev has.
func (e *Emulator) freeName(prefix string) string {
	for n := 0; ; n++ {
		if name := fmt.Sprintf("%s%d", prefix, n); e.model.Bdev(name) == nil {
			return name
		}
	}
}

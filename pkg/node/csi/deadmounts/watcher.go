package deadmounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kubelet"
	"github.com/moor-storage/moor/pkg/node/csi"
)

// Period is the time between two looks at all mounts. One look reads the mount table and
// 4 KiB of each device.
const Period = 2 * time.Second

// inARow is how many looks must find a mount dead before it is told: the kubelet may be
// taking it away, or a device may have been lost for a moment.
const inARow = 2

// Options is what a Watcher works on.
type Options struct {
	// Driver is the name of the CSI driver.
	Driver string
	// Mounts is the mount table.
	Mounts func() ([]csi.Mount, error)
	// Broken says why what is mounted on path is of no use; nil if it is not known to be.
	// It may take long where a device hangs.
	Broken func(path string, m csi.Mount) error
	// Ready reports whether the device of a volume answers, so that it can be mounted anew.
	// It may take as long.
	Ready func(ctx context.Context, volume string) bool
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Watcher looks at the mounts of all pods.
type Watcher struct {
	o       Options
	changed chan struct{}
	// found are the dead ones by path, of the looks before, and looks is how many there were.
	// Only look uses them.
	found map[string]finding
	looks int

	mu   sync.Mutex
	dead []moorv1alpha1.DeadMount
	// asked are the paths and volumes whose answers no look has had yet.
	asked map[string]*answer
	// touched are the paths of which Touch has not ended.
	touched map[string]bool
}

// answer is what was answered about a path or volume, once it was given.
type answer struct {
	given bool
	why   error
	// look is the one that asked.
	look int
}

// finding is a mount that was found dead.
type finding struct {
	pod         types.UID
	volume, why string
	since       time.Time
	looks       int
}

// New makes a Watcher.
func New(o Options) *Watcher {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Watcher{o: o, changed: make(chan struct{}, 1), asked: map[string]*answer{}, touched: map[string]bool{}}
}

// Changed gets a value when what Dead returns has changed.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Dead are the volumes with dead mounts, ordered by volume; pods by UID.
func (w *Watcher) Dead() []moorv1alpha1.DeadMount {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dead)
}

// Run looks every Period until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	ticker := w.o.Clock.NewTicker(Period)
	defer ticker.Stop()
	for {
		if err := w.look(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "look for dead mounts")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look looks at all mounts once. What cannot be found out stays as it was.
func (w *Watcher) look(ctx context.Context) error {
	shown, err := w.shown()
	if err != nil {
		return err
	}
	next := map[string]finding{}
	for _, s := range shown {
		if f, dead := w.judge(ctx, s); dead {
			next[s.mount.Path] = f
		}
	}
	w.found = next
	w.tell(ctx, next)
	w.forget()
	return nil
}

// showing is a mount by which a pod has a volume of the driver.
type showing struct {
	pod    types.UID
	volume string
	mount  csi.Mount
}

// shown are the mounts of all pods.
func (w *Watcher) shown() ([]showing, error) {
	list, err := w.o.Mounts()
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	top := map[string]csi.Mount{} // what lies on another mount hides it
	for _, m := range list {
		top[m.Path] = m
	}
	var out []showing
	for path, m := range top {
		at, ok := kubelet.Parse(path)
		if !ok {
			continue
		}
		if volume := w.volume(at); volume != "" {
			out = append(out, showing{pod: at.Pod, volume: volume, mount: m})
		}
	}
	return out, nil
}

// forget forgets what was answered after the look that asked, if this one did not want it any more.
func (w *Watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.asked, func(_ string, a *answer) bool { return a.given && a.look < w.looks })
	w.looks++
}

// judge says what is found of one mount, and whether it is dead. While nothing is answered
// about it, it is what it was.
func (w *Watcher) judge(ctx context.Context, s showing) (finding, bool) {
	path := s.mount.Path
	before, known := w.found[path]
	known = known && before.pod == s.pod && before.volume == s.volume
	answered, why := w.ask(ctx, path, func() error { return w.o.Broken(path, s.mount) })
	switch {
	case !answered:
		return before, known
	case why == nil:
		return finding{}, false
	case known:
		before.why, before.looks = why.Error(), min(before.looks+1, inARow)
		return before, true
	}
	return finding{pod: s.pod, volume: s.volume, why: why.Error(), since: w.o.Clock.Now(), looks: 1}, true
}

// volume is the handle of the volume that is shown there; "" if it is another driver's, or not
// known: the kubelet is making it, or taking it away.
func (w *Watcher) volume(at kubelet.Target) string {
	raw, err := os.ReadFile(at.Data())
	if err != nil {
		return ""
	}
	if d, ok := kubelet.ParseData(raw); ok && d.Driver == w.o.Driver {
		return d.Handle
	}
	return ""
}

// patience is how long one look waits for the answer about one mount.
const patience = 100 * time.Millisecond

// ask asks about one mount or volume, and waits for no answer that takes long: what hangs
// holds up neither the others nor itself a second time. An answer that comes later is that of the
// next look, or where all take long nothing would ever be found.
func (w *Watcher) ask(ctx context.Context, about string, find func() error) (answered bool, why error) {
	w.mu.Lock()
	known := w.asked[about]
	if known == nil {
		known = &answer{look: w.looks}
		w.asked[about] = known
		come := w.find(known, find)
		w.mu.Unlock()
		w.await(ctx, come)
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	if known.given {
		delete(w.asked, about)
	}
	return known.given, known.why
}

// find has an answer found; the channel is closed when it was given.
func (w *Watcher) find(a *answer, find func() error) (come chan struct{}) {
	come = make(chan struct{})
	go func() {
		defer close(come)
		why := find()
		w.mu.Lock()
		defer w.mu.Unlock()
		a.given, a.why = true, why
	}()
	return come
}

// await waits for an answer, but not for long.
func (w *Watcher) await(ctx context.Context, come <-chan struct{}) {
	timer := w.o.Clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-come:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// errNotReady is the answer about a volume whose device is not ready.
var errNotReady = errors.New("not ready")

// ready reports whether the device of a volume is known to answer; while nothing is answered
// about it, what it was.
func (w *Watcher) ready(ctx context.Context, volume string) bool {
	answered, why := w.ask(ctx, volume, func() error {
		if !w.o.Ready(ctx, volume) {
			return errNotReady
		}
		return nil
	})
	if answered {
		return why == nil
	}
	return slices.ContainsFunc(w.Dead(), func(d moorv1alpha1.DeadMount) bool { return d.Volume == volume && d.DeviceReady })
}

// tell keeps what was found often enough, and says so if it is news.
func (w *Watcher) tell(ctx context.Context, found map[string]finding) {
	byVolume := map[string]*moorv1alpha1.DeadMount{}
	for _, f := range found {
		if f.looks < inARow {
			continue
		}
		d := byVolume[f.volume]
		if d == nil {
			d = &moorv1alpha1.DeadMount{Volume: f.volume, Since: metav1.NewTime(f.since), Message: f.why}
			byVolume[f.volume] = d
		}
		if f.since.Before(d.Since.Time) {
			d.Since = metav1.NewTime(f.since)
		}
		d.Message = min(d.Message, f.why) // the same at each look
		d.Pods = append(d.Pods, f.pod)
	}
	dead := make([]moorv1alpha1.DeadMount, 0, len(byVolume))
	for _, d := range byVolume {
		slices.Sort(d.Pods)
		d.Pods = slices.Compact(d.Pods)
		d.DeviceReady = w.ready(ctx, d.Volume)
		d.Since = metav1.NewTime(d.Since.Truncate(time.Second)) // as the API server has it
		dead = append(dead, *d)
	}
	slices.SortFunc(dead, func(a, b moorv1alpha1.DeadMount) int { return cmp.Compare(a.Volume, b.Volume) })
	w.mu.Lock()
	news := !equality.Semantic.DeepEqual(dead, w.dead)
	w.dead = dead
	w.mu.Unlock()
	if !news {
		return
	}
	for _, d := range dead {
		logr.FromContextOrDiscard(ctx).Info("a mount is dead", "volume", d.Volume, "pods", d.Pods, "reason", d.Message)
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

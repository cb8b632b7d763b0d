package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// failoverClass is of deploy/examples/storage-failover.yaml: one replica.
const failoverClass = "snap-failover"

// driverName is the name of Moor's CSI driver.
const driverName = "csi.snap.nvidia.com"

// incident is a way to lose a host.
type incident struct {
	// name of the result.
	name     string
	workload workload.Spec
	// runs by default.
	runs int
	// prepare makes ready for the damage, before any time counts; nil: nothing is needed.
	prepare func(ctx context.Context, b *bench, host string) error
	// strike does the damage; the time counts from before it.
	strike func(ctx context.Context, b *bench, host string) error
	// mend undoes the damage; nil: host and DPU get their power again.
	mend func(ctx context.Context, b *bench, host string) error
	// anew makes a new workload for every run, all on one host.
	anew bool
	// stays: no pod is made anew; the time is the longest in which one acknowledged nothing.
	stays bool
	// kind is how the value follows from the runs.
	kind results.Kind
	// hops are timed too: the DPU is there to be watched.
	hops bool
}

// small is a workload of one pod that writes often.
func small(kind string) workload.Spec {
	return workload.Spec{Kind: kind, Class: failoverClass, Pods: 1, PauseMicros: 100_000}
}

func (b *bench) hostOffStatefulSet(ctx context.Context) error {
	return b.lose(ctx, incident{name: "failover.host_off.statefulset", workload: small(workload.StatefulSet), runs: 30, strike: hostOff, kind: results.Median, hops: true})
}

func (b *bench) hostOffDeployment(ctx context.Context) error {
	return b.lose(ctx, incident{name: "failover.host_off.deployment", workload: small(workload.Deployment), runs: 30, strike: hostOff, kind: results.Median, hops: true})
}

// recordedBelow is a failover on a bed that records beneath the storage target,
// by which the target's own log is judged. Its times are not those of other
// beds: each write goes through one more process.
func (b *bench) recordedBelow(ctx context.Context) error {
	return b.lose(ctx, incident{name: recordedName, workload: small(workload.StatefulSet), runs: 3, strike: hostOff, kind: results.Median})
}

func (b *bench) controllersKilled(ctx context.Context) error {
	return b.lose(ctx, incident{name: "failover.host_off.controllers_killed", workload: small(workload.StatefulSet), runs: 10, strike: hostOffAndKill, kind: results.Median})
}

func (b *bench) hostAndDPUOff(ctx context.Context) error {
	return b.lose(ctx, incident{name: "failover.host_and_dpu_off", workload: small(workload.StatefulSet), runs: 10, strike: bothOff, kind: results.Median})
}

// pathCut has the DPU of the pod's host lose its way to the storage, and nothing else. The
// DPU notices within some seconds, and pathTimeout (15 s) is in the time.
func (b *bench) pathCut(ctx context.Context) error {
	return b.lose(ctx, incident{
		name: "epochs.failover.path_cut", workload: small(workload.StatefulSet), runs: 20, kind: results.Median,
		strike: func(ctx context.Context, b *bench, host string) error { return b.bed.CutStorage(ctx, dpuOf(host)) },
		mend:   func(ctx context.Context, b *bench, host string) error { return b.bed.JoinStorage(ctx, dpuOf(host)) },
	})
}

// snapKilled is a dead mount: SNAP comes back without its state, and the pod has to be made
// anew. Each run has a volume of its own, since pods of one are made anew five times within
// an hour at most.
func (b *bench) snapKilled(ctx context.Context) error {
	return b.lose(ctx, incident{name: "failover.snap_killed", workload: small(workload.StatefulSet), runs: 20, strike: snapAway, anew: true, kind: results.Median})
}

// snapKilledWithState is the same where the functions outlive SNAP: the pod goes on.
func (b *bench) snapKilledWithState(ctx context.Context) error {
	return b.lose(ctx, incident{name: "failover.snap_killed_with_state", workload: small(workload.StatefulSet), runs: 20, strike: snapAway, mend: snapSteady, stays: true, kind: results.Median})
}

// snapAwayFor is how long SNAP is away.
const snapAwayFor = 2 * time.Second

func snapAway(ctx context.Context, b *bench, host string) error {
	name := "snap-emulator-" + dpuOf(host)
	if err := b.bed.Kill(name, syscall.SIGKILL); err != nil {
		return err
	}
	return errors.Join(pause(ctx, snapAwayFor), b.bed.Restart(ctx, name))
}

// snapSteady waits until a SNAP that was away counts as back: snap-node-driver adds up the
// times of one that ends within ten seconds again and again, and takes its path for lost.
func snapSteady(ctx context.Context, _ *bench, _ string) error { return pause(ctx, 12*time.Second) }

// manyVolumes is how many volumes failover.volumes20 has on the host that dies.
const manyVolumes = 20

func (b *bench) volumes20(ctx context.Context) error {
	if err := b.wantFunctions(manyVolumes); err != nil {
		return err
	}
	// Twenty pods that write as often as one would keep a small machine busy.
	many := workload.Spec{Kind: workload.StatefulSet, Class: failoverClass, Pods: manyVolumes, PauseMicros: 1_000_000}
	return b.lose(ctx, incident{name: "failover.volumes20", workload: many, runs: 3, strike: hostOff, anew: true, kind: results.Worst})
}

func hostOff(ctx context.Context, b *bench, host string) error { return b.bed.PowerOff(ctx, host) }

// bothOff switches both off, as when a machine's supply fails: the host first,
// since it takes its DPU to cut the link, and the DPU before it can have seen
// that its host is gone.
func bothOff(ctx context.Context, b *bench, host string) error {
	if err := b.bed.PowerOff(ctx, host); err != nil {
		return err
	}
	return b.bed.PowerOff(ctx, dpuOf(host))
}

// controllers are killed by failover.host_off.controllers_killed.
var controllers = []string{"snap-csi-plugin", "snap-host-controller"}

// hostOffAndKill kills the controllers with the host and starts them again, as
// a kubelet does with containers that ended for the first time: at once.
func hostOffAndKill(ctx context.Context, b *bench, host string) error {
	off := make(chan error, 1)
	go func() { off <- b.bed.PowerOff(ctx, host) }()
	var failed []error
	for _, name := range controllers {
		failed = append(failed, b.bed.Kill(name, syscall.SIGKILL))
	}
	for _, name := range controllers {
		failed = append(failed, b.bed.Restart(ctx, name))
	}
	return errors.Join(append(failed, <-off)...)
}

func dpuOf(host string) string { return "dpu-" + strings.TrimPrefix(host, "host-") }

// lose measures an incident again and again. A run that fails is told of,
// counted, and followed by a new beginning.
func (b *bench) lose(ctx context.Context, i incident) error {
	if err := b.prepareFailover(ctx); err != nil {
		return err
	}
	took := b.series(b.inMode(i.name), results.Millis, i.kind)
	var w *workload.Workload
	defer func() {
		if w != nil {
			w.Close()
		}
	}()
	for run := range b.options.times(i.runs) {
		begin := time.Now()
		d, err := b.loseOne(ctx, i, &w, run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			took.fail(err)
			b.say("  run %d FAILED after %s: %v", run+1, time.Since(begin).Round(time.Second), err)
			forget(w)
			b.mendAll(ctx, i)
			if w, err = nil, b.recover(ctx); err != nil {
				return err
			}
			continue
		}
		took.add(millis(d))
		b.say("  run %d: %s; %s with all around it", run+1, d.Round(time.Millisecond), time.Since(begin).Round(time.Second))
	}
	return nil
}

// loseOne is one run: from a bed that is whole, to one that is coming back.
// Its blow falls at random within a period of the kubelets and of the beats: a
// host counts its periods from when it got its power back, at the end of an
// earlier run, so that any rule would hit it in the same phase again and again.
func (b *bench) loseOne(ctx context.Context, i incident, at **workload.Workload, run int) (time.Duration, error) {
	w := *at
	if i.anew && w != nil {
		forget(w)
		if err := errors.Join(b.clear(ctx), b.whole(ctx)); err != nil {
			return 0, err
		}
		w, *at = nil, nil
	}
	if w == nil {
		var err error
		if w, err = b.writeOn(ctx, i, run); err != nil {
			return 0, err
		}
		*at = w
	}
	if err := errors.Join(b.whole(ctx), w.Replicated(ctx)); err != nil {
		return 0, err
	}
	host, err := w.Host()
	if err != nil {
		return 0, err
	}
	if i.prepare != nil {
		if err := i.prepare(ctx, b, host); err != nil {
			return 0, err
		}
	}
	if err := pause(ctx, rand.N(kubeletPeriod)); err != nil {
		return 0, err
	}
	d, err := b.strike(ctx, i, w, host)
	if err != nil {
		return 0, err
	}
	if err := w.Prove(ctx); err != nil {
		return 0, err
	}
	if i.mend != nil {
		return d, i.mend(ctx, b, host)
	}
	return d, b.powerOn(ctx, host)
}

// mendAll undoes the damage of a run that failed, to whichever host it was done.
func (b *bench) mendAll(ctx context.Context, i incident) {
	for _, host := range b.bed.Nodes() {
		if i.mend != nil {
			_ = i.mend(ctx, b, host) // most have none
		}
	}
}

// writeOn makes the workload; that of an incident that wants it anew comes to
// lie on one host, another one with each run.
func (b *bench) writeOn(ctx context.Context, i incident, run int) (*workload.Workload, error) {
	if !i.anew {
		return b.write(ctx, i.workload)
	}
	for n, node := range b.bed.Nodes() {
		if err := kit.Cordon(ctx, b.clients.Host, node, n != b.turn(run)); err != nil {
			return nil, err
		}
	}
	w, err := b.write(ctx, i.workload)
	return w, errors.Join(err, b.uncordon(ctx))
}

// strike times from the blow until every pod has written again.
func (b *bench) strike(ctx context.Context, i incident, w *workload.Workload, host string) (time.Duration, error) {
	old := w.Writers()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch *stages
	if i.hops {
		var err error
		if watch, err = b.watchStages(watching, w, host); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	if err := i.strike(ctx, b, host); err != nil {
		return 0, err
	}
	if i.stays {
		return w.Stalled(ctx, begin)
	}
	if err := w.AwaitWriters(ctx, old); err != nil {
		return 0, err
	}
	if watch != nil {
		if err := watch.note(ctx, b); err != nil {
			return 0, err
		}
	}
	return w.Resumed().Sub(begin), nil
}

// write starts a workload in a namespace of its own.
func (b *bench) write(ctx context.Context, spec workload.Spec) (*workload.Workload, error) {
	if err := b.makeNamespace(ctx); err != nil {
		return nil, err
	}
	return workload.Start(ctx, workload.Options{Bed: b.bed, Clients: b.clients, Namespace: namespace, Checked: b.checked}, spec)
}

// forget ends what watches over a workload; nil is none.
func forget(w *workload.Workload) {
	if w != nil {
		w.Close()
	}
}

// prepareFailover wants the stock profile, applies the StorageClass and finds
// the mode.
func (b *bench) prepareFailover(ctx context.Context) error {
	if err := b.wantStock(); err != nil {
		return err
	}
	if err := kit.Apply(ctx, b.clients.Host, filepath.Join(b.bed.Root(), "deploy", "examples", "storage-failover.yaml")); err != nil {
		return err
	}
	return b.whole(ctx)
}

// wantStock is an error unless the kubelets have the stock settings.
func (b *bench) wantStock() error {
	if profile := b.bed.Options().KubeletProfile; profile != devcluster.ProfileStock {
		return fmt.Errorf("the kubelets have profile %s: these numbers need %s; run make bench, or moor-dev up --kubelet-profile=%s",
			profile, devcluster.ProfileStock, devcluster.ProfileStock)
	}
	return nil
}

// findMode reads from the CSIDriver how the bed attaches.
func findMode(ctx context.Context, host client.Client) (string, error) {
	driver := &storagev1.CSIDriver{}
	if err := host.Get(ctx, client.ObjectKey{Name: driverName}, driver); err != nil {
		return "", fmt.Errorf("find how the bed attaches: %w", err)
	}
	if required := driver.Spec.AttachRequired; required != nil && !*required {
		return results.ModeNode, nil
	}
	return results.ModeController, nil
}

// inMode is the name of a result that the mode of attaching changes: those with
// a target for each mode always carry it, the others only on a bed that is not
// the default one.
func (b *bench) inMode(name string) string {
	both := name == "failover.host_off.statefulset" || name == "failover.host_off.deployment"
	if both || b.mode != results.ModeController {
		return name + "." + b.mode
	}
	return name
}

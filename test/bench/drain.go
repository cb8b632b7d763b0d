package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/kit"
)

// drain compares how long a pod is away that is drained from its host, with a
// replica of its volume and without. Both fall on the same phases of the
// kubelet's period, see untilPhase.
func (b *bench) drain(ctx context.Context) error { return b.drainBoth(ctx, "failover.drain", 13) }

// drainSlow is drain where opening a volume's storage takes so many seconds
// more: that of the test bed answers within milliseconds, which most storage
// that is reached over a network does not.
func drainSlow(seconds int) func(*bench, context.Context) error {
	slow := fault.Fault{Method: "bdev_moor_target_create", DelayMS: 1000 * seconds, Count: -1}
	return func(b *bench, ctx context.Context) (err error) {
		for _, dpu := range b.bed.DPUs() {
			if err := kit.SNAP(dpu).Call(ctx, "moor_inject", slow, nil); err != nil {
				return fmt.Errorf("slow the storage of %s down: %w", dpu, err)
			}
			defer func() { err = errors.Join(err, kit.SNAP(dpu).Call(context.WithoutCancel(ctx), "moor_clear", nil, nil)) }()
		}
		return b.drainBoth(ctx, fmt.Sprintf("failover.drain.storage%ds", seconds), 13)
	}
}

func (b *bench) drainBoth(ctx context.Context, name string, runs int) error {
	if err := b.prepareFailover(ctx); err != nil {
		return err
	}
	kinds := []struct{ name, class string }{{name + ".replica", failoverClass}, {name + ".cold", storageClass}}
	for _, kind := range kinds {
		took := b.series(b.inMode(kind.name), results.Millis, results.Median)
		if err := b.drainClass(ctx, kind.class, runs, took); err != nil {
			return err
		}
		if err := b.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drainClass drains the one pod of a workload of the class again and again.
func (b *bench) drainClass(ctx context.Context, class string, runs int, took *series) error {
	spec := small(workload.StatefulSet)
	spec.Class = class
	var w *workload.Workload
	defer func() {
		if w != nil {
			w.Close()
		}
	}()
	begin := time.Now()
	for run := range b.options.times(runs) {
		d, err := b.drainOne(ctx, spec, &w, begin, run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			took.fail(err)
			b.say("  run %d FAILED: %v", run+1, err)
			forget(w)
			if w, err = nil, b.recover(ctx); err != nil {
				return err
			}
			continue
		}
		took.add(millis(d))
		b.say("  run %d of class %s: %s", run+1, class, d.Round(time.Millisecond))
	}
	return nil
}

func (b *bench) drainOne(ctx context.Context, spec workload.Spec, at **workload.Workload, begin time.Time, run int) (time.Duration, error) {
	if *at == nil {
		w, err := b.write(ctx, spec)
		if err != nil {
			return 0, err
		}
		*at = w
	}
	w := *at
	ready := w.Replicated
	if spec.Class == storageClass {
		ready = w.Alone
	}
	if err := ready(ctx); err != nil {
		return 0, err
	}
	host, err := w.Host()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, untilPhase(time.Since(begin), run)); err != nil {
		return 0, err
	}
	away, err := b.evict(ctx, w, host)
	if err != nil {
		return 0, err
	}
	return away, w.Prove(ctx)
}

// evict drains the host and returns how long nothing was written.
func (b *bench) evict(ctx context.Context, w *workload.Workload, host string) (away time.Duration, err error) {
	if err := kit.Cordon(ctx, b.clients.Host, host, true); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kit.Cordon(context.WithoutCancel(ctx), b.clients.Host, host, false)) }()
	old := w.Writers()
	for _, v := range w.Volumes() {
		eviction := &policyv1.Eviction{}
		eviction.Name, eviction.Namespace = v.Pod.Name, v.Pod.Namespace
		if err := b.clients.Host.SubResource("eviction").Create(ctx, v.Pod, eviction); err != nil {
			return 0, fmt.Errorf("drain %s: evict pod %s: %w", host, client.ObjectKeyFromObject(v.Pod), err)
		}
	}
	if err := w.AwaitWriters(ctx, old); err != nil {
		return 0, err
	}
	for _, v := range w.Volumes() {
		if len(v.Past) == 0 {
			return 0, fmt.Errorf("drain %s: pod %s never wrote: %s", host, v.Pod.Name, kit.Story(ctx, b.clients.Host, v.Pod))
		}
		away = max(away, v.First.At.Sub(v.Past[len(v.Past)-1].At))
	}
	return away, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/test/bench/results"
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
	slow := snapemulator.Fault{Method: "bdev_moor_target_create", DelayMS: 1000 * seconds, Count: -1}
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
	m := small(statefulSet)
	m.class = class
	var h *harbour
	defer func() {
		if h != nil {
			h.leave()
		}
	}()
	begin := time.Now()
	for run := range b.options.times(runs) {
		d, err := b.drainOne(ctx, m, &h, begin, run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			took.fail(err)
			b.say("  run %d FAILED: %v", run+1, err)
			if h, err = nil, errors.Join(b.forget(h), b.recover(ctx)); err != nil {
				return err
			}
			continue
		}
		took.add(millis(d))
		b.say("  run %d of class %s: %s", run+1, class, d.Round(time.Millisecond))
	}
	return nil
}

func (b *bench) drainOne(ctx context.Context, m mooring, at **harbour, begin time.Time, run int) (time.Duration, error) {
	if *at == nil {
		h, err := b.moor(ctx, m)
		if err != nil {
			return 0, err
		}
		*at = h
	}
	h := *at
	ready := h.replicated
	if m.class == storageClass {
		ready = h.alone
	}
	if err := ready(ctx); err != nil {
		return 0, err
	}
	host, err := h.host()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, untilPhase(time.Since(begin), run)); err != nil {
		return 0, err
	}
	away, err := b.evict(ctx, h, host)
	if err != nil {
		return 0, err
	}
	return away, h.prove(ctx)
}

// evict drains the host and returns how long nothing was written.
func (b *bench) evict(ctx context.Context, h *harbour, host string) (away time.Duration, err error) {
	if err := kit.Cordon(ctx, b.clients.Host, host, true); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kit.Cordon(context.WithoutCancel(ctx), b.clients.Host, host, false)) }()
	old := h.writers()
	for _, berth := range h.berths {
		eviction := &policyv1.Eviction{}
		eviction.Name, eviction.Namespace = berth.pod.Name, berth.pod.Namespace
		if err := b.clients.Host.SubResource("eviction").Create(ctx, berth.pod, eviction); err != nil {
			return 0, fmt.Errorf("drain %s: evict pod %s: %w", host, client.ObjectKeyFromObject(berth.pod), err)
		}
	}
	if err := h.settle(ctx, old); err != nil {
		return 0, err
	}
	for _, berth := range h.berths {
		if len(berth.past) == 0 {
			return 0, fmt.Errorf("drain %s: pod %s never wrote: %s", host, berth.pod.Name, kit.Story(ctx, b.clients.Host, berth.pod))
		}
		away = max(away, berth.first.at.Sub(berth.past[len(berth.past)-1].at))
	}
	return away, nil
}

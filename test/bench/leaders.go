package main

import (
	"context"
	"errors"
	"slices"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

// attachRolling attaches a crowd of new volumes while each replica of the controllers is
// restarted, one after the other. One that is not attached fails the run.
func (b *bench) attachRolling(ctx context.Context) (err error) {
	if err := b.wantCrowd(); err != nil {
		return err
	}
	series := b.series("attach.rolling_restart", results.Millis, results.Worst)
	nodes := b.bed.Nodes()
	undo, err := moor.Elect(ctx, b.bed, nodes[0], nodes[1])
	defer func() { err = errors.Join(err, undo(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	for range b.options.times(3) {
		volumes, err := b.create(ctx, crowd, plain())
		if err != nil {
			return err
		}
		rolled := make(chan error, 1)
		go func() { rolled <- moor.Roll(ctx, b.bed, nodes[0], nodes[1]) }()
		_, all, err := b.attachAtOnce(ctx, volumes, b.turn)
		if err := errors.Join(err, <-rolled, b.clearVolumes(ctx)); err != nil {
			return err
		}
		series.add(all)
	}
	return nil
}

// leadersLost is a host that loses its power together with the leaders that would fail it over:
// their leases have to run out (5 s) before other replicas begin.
func (b *bench) leadersLost(ctx context.Context) (err error) {
	undo := func(context.Context) error { return nil }
	defer func() { err = errors.Join(err, undo(context.WithoutCancel(ctx))) }()
	return b.lose(ctx, incident{
		name: "failover.host_off.leaders_lost", workload: small(workload.StatefulSet), runs: 20, strike: hostOff, kind: results.Median,
		prepare: func(ctx context.Context, b *bench, host string) (err error) {
			if err := undo(ctx); err != nil {
				return err
			}
			nodes := b.bed.Nodes()
			next := nodes[(slices.Index(nodes, host)+1)%len(nodes)]
			undo, err = moor.Elect(ctx, b.bed, host, next)
			return err
		},
	})
}

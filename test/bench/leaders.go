package main

import (
	"context"
	"errors"
	"slices"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

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

package main

import (
	"context"
	"errors"
	"fmt"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

// powerNamespace is where PowerControls are.
const powerNamespace = "dpf-operator-system"

// powerAlone has host and DPU lose their power together where the storage does not revoke:
// only what the BMC of the host says ends the epoch.
func (b *bench) powerAlone(ctx context.Context) (err error) {
	for _, host := range b.bed.Nodes() {
		undo, failed := b.giveBMC(ctx, host)
		defer func() { err = errors.Join(err, undo(context.WithoutCancel(ctx))) }()
		if failed != nil {
			return fmt.Errorf("give host %s a BMC: %w", host, failed)
		}
	}
	defer func() { err = errors.Join(err, moor.Revokes(context.WithoutCancel(ctx), b.clients.DPU, true)) }()
	if err := moor.Revokes(ctx, b.clients.DPU, false); err != nil {
		return err
	}
	return b.lose(ctx, incident{name: "failover.power", workload: small(workload.StatefulSet), runs: 20, strike: bothOff, kind: results.Median})
}

// giveBMC gives a host a BMC that is on record, and returns how that is undone. Who gives the
// power back is the benchmark.
func (b *bench) giveBMC(ctx context.Context, host string) (undo func(context.Context) error, err error) {
	bmc, err := b.bed.BMC(ctx, host, dpuOf(host))
	if err != nil {
		return func(context.Context) error { return nil }, err
	}
	record := bmc.Record(host, powerNamespace, moorv1alpha1.PowerOnManual)
	undo = func(ctx context.Context) error {
		failed := bmc.Stop()
		for _, o := range record {
			failed = errors.Join(failed, kube.Delete(ctx, b.clients.Host, o))
		}
		return failed
	}
	for _, o := range record {
		if err := b.clients.Host.Create(ctx, o); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

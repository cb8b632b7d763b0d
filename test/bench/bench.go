package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// suite measures some results together.
type suite struct {
	// names of its results; one that ends in a dot is the beginning of them.
	names []string
	run   func(*bench, context.Context) error
}

// suites are all, in the order in which they run.
func suites() []suite {
	return []suite{
		{[]string{"provision"}, (*bench).provision},
		{[]string{"attach.single", "detach.single", "attach.api_writes.host", "attach.api_writes.dpu"}, (*bench).attachSingle},
		{[]string{"attach.parallel50", "attach.parallel50.all"}, (*bench).attachParallel},
		{[]string{"fence.rpc"}, (*bench).fence},
		{[]string{"pod.new_volume"}, (*bench).pods},
		{[]string{"rss."}, (*bench).memory},
	}
}

func allNames() []string {
	var out []string
	for _, s := range suites() {
		out = append(out, s.names...)
	}
	return out
}

// bench is one run of the benchmarks.
type bench struct {
	bed     *devcluster.Cluster
	clients kit.Clients
	options options
	conn    *grpc.ClientConn
	driver  csi.ControllerClient
	machine string
	results []Result
	// writes is who wrote what to the API servers in writeRuns attaches and
	// detaches.
	writes    []writeRow
	writeRuns int
}

func newBench(ctx context.Context, bed *devcluster.Cluster, o options) (*bench, error) {
	clients, err := kit.NewClients(bed.HostConfig(), bed.DPUConfig())
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(layout.MachineDir(layout.Hub), "var-lib-moor", "csi.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("reach the CSI controller at %s: %w", socket, err)
	}
	b := &bench{bed: bed, clients: clients, options: o, conn: conn, driver: csi.NewControllerClient(conn), machine: describeMachine()}
	if err := b.clear(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("remove what an earlier run left: %w", err), conn.Close())
	}
	if err := b.storage(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return b, nil
}

func (b *bench) close() { _ = b.conn.Close() }

// measure runs the suites that are wanted. Each is cleaned up after, also when
// it fails or is interrupted; one that fails does not keep the others from
// being measured.
func (b *bench) measure(ctx context.Context) error {
	before, err := kit.Take(ctx, b.bed, b.clients)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range suites() {
		if !b.options.matches(s) || ctx.Err() != nil {
			continue
		}
		begin := time.Now()
		b.say("measuring %s", strings.Join(s.names, ", "))
		if err := errors.Join(s.run(b, ctx), b.clear(context.WithoutCancel(ctx))); err != nil {
			failed = append(failed, fmt.Errorf("measure %s: %w", s.names[0], err))
		}
		b.say("  took %s", time.Since(begin).Round(time.Second))
	}
	return errors.Join(append(failed, b.nothingLeft(context.WithoutCancel(ctx), before))...)
}

// nothingLeft waits until everything is gone that was not there before.
func (b *bench) nothingLeft(ctx context.Context, before kit.Inventory) error {
	var left []string
	err := until(ctx, "nothing is left of the volumes", func(ctx context.Context) (bool, error) {
		now, err := kit.Take(ctx, b.bed, b.clients)
		left = now.Less(before)
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("%w: %q", err, left)
	}
	return nil
}

func (b *bench) add(results ...Result) { b.results = append(b.results, results...) }

// finished are the results that are wanted, with machine and commit.
func (b *bench) finished(ctx context.Context) []Result {
	commit := describeCommit(context.WithoutCancel(ctx), b.bed.Root())
	out := slices.DeleteFunc(b.results, func(r Result) bool { return !b.options.wants(r.Name) })
	for i := range out {
		out[i].Machine, out[i].Commit = b.machine, commit
	}
	return out
}

func (b *bench) print(results []Result) error {
	if len(b.writes) > 0 {
		fmt.Printf("\nAPI writes of an attach and detach, over %d of them\n\n", b.writeRuns)
		if err := printWrites(os.Stdout, b.writes, b.writeRuns); err != nil {
			return err
		}
	}
	if len(results) > 0 {
		fmt.Printf("\n%s, commit %s\n\n", results[0].Machine, results[0].Commit)
	}
	return printResults(os.Stdout, results)
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

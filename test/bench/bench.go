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
func suites() []suite { return append(inProcess(), onBed()...) }

// inProcess are the suites that need no bed.
func inProcess() []suite {
	return []suite{
		{[]string{"extender.prioritize.", "extender.allocations."}, (*bench).prioritize},
		{[]string{"extender.http.5000", "extender.http.5000.rate"}, (*bench).overHTTP},
		{[]string{"extender.replica_node_chosen"}, (*bench).replicaNode},
	}
}

// onBed are the suites that measure a bed that is up.
func onBed() []suite {
	return []suite{
		{[]string{"provision"}, (*bench).provision},
		{[]string{"attach.single", "detach.single", "attach.api_writes.host", "attach.api_writes.dpu"}, (*bench).attachSingle},
		{[]string{"attach.parallel50", "attach.parallel50.all"}, (*bench).attachParallel},
		{[]string{"hotplug.attach"}, (*bench).hotplugSingle},
		{[]string{"hotplug.parallel31"}, (*bench).hotplugParallel},
		{[]string{"fence.rpc"}, (*bench).fence},
		{[]string{"snapshot.1gib", "clone.1gib"}, (*bench).copies},
		{[]string{"expand.pod"}, (*bench).expand},
		{[]string{"pod.new_volume"}, (*bench).pods},
		{[]string{"failover.host_off.statefulset.", "failover.detect", "failover.fence", "failover.promote", "safety."}, (*bench).hostOffStatefulSet},
		{[]string{"failover.host_off.deployment."}, (*bench).hostOffDeployment},
		{[]string{"failover.drain.replica", "failover.drain.cold", "failover.drain.ratio"}, (*bench).drain},
		{[]string{"failover.drain.storage2s."}, drainSlow(2)},
		{[]string{"failover.drain.storage10s."}, drainSlow(10)},
		{[]string{"failover.host_off.controllers_killed"}, (*bench).controllersKilled},
		{[]string{"failover.volumes20"}, (*bench).volumes20},
		{[]string{"failover.host_and_dpu_off"}, (*bench).hostAndDPUOff},
		{[]string{"rss.", "list.volumes1000"}, (*bench).many},
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
	// root is the checkout.
	root string
	// bed is nil if nothing is wanted that needs one.
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
	// mode is how the bed attaches.
	mode   string
	safety safety
	stages stageTimes
}

func newBench(ctx context.Context, bed *devcluster.Cluster, o options) (*bench, error) {
	clients, err := kit.NewClients(bed.HostConfig(), bed.DPUConfig())
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(layout.MachineDir(layout.Hub), "var-lib-moor", "csi.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true))) // a bed that is just up may not serve yet
	if err != nil {
		return nil, fmt.Errorf("reach the CSI controller at %s: %w", socket, err)
	}
	b := &bench{root: bed.Root(), bed: bed, clients: clients, options: o, conn: conn, driver: csi.NewControllerClient(conn), machine: describeMachine()}
	if b.mode, err = findMode(ctx, clients.Host); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := b.clear(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("remove what an earlier run left: %w", err), conn.Close())
	}
	if err := b.storage(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return b, nil
}

func (b *bench) close() {
	if b.conn != nil {
		_ = b.conn.Close()
	}
}

// measure runs the suites that are wanted; one that fails does not keep the
// others from being measured.
func (b *bench) measure(ctx context.Context) error {
	failed := b.runAll(ctx, inProcess())
	if b.bed == nil {
		return failed
	}
	before, err := kit.Take(ctx, b.bed, b.clients)
	if err != nil {
		return errors.Join(failed, err)
	}
	// Also while it is cleaned up: what was killed takes sidecars with it later.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go kit.KeepSidecars(keeping, b.bed, b.say)
	failed = errors.Join(failed, b.runAll(ctx, onBed()))
	b.add(b.stages.results(b.inMode)...)
	b.add(b.safety.results(b.mode)...)
	return errors.Join(failed, b.nothingLeft(context.WithoutCancel(ctx), before))
}

// runAll runs those of the suites that are wanted. Each is cleaned up after,
// also when it fails or is interrupted.
func (b *bench) runAll(ctx context.Context, all []suite) error {
	var failed []error
	for _, s := range all {
		if !b.options.matches(s) || ctx.Err() != nil {
			continue
		}
		begin := time.Now()
		b.say("measuring %s", strings.Join(s.names, ", "))
		err := s.run(b, ctx)
		if b.bed != nil {
			err = errors.Join(err, b.clear(context.WithoutCancel(ctx)))
		}
		if err != nil {
			err = fmt.Errorf("measure %s: %w", s.names[0], err)
			b.say("  %v", err)
			failed = append(failed, err)
		}
		b.say("  took %s", time.Since(begin).Round(time.Second))
	}
	return errors.Join(failed...)
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
	commit := describeCommit(context.WithoutCancel(ctx), b.root)
	out := slices.DeleteFunc(b.results, func(r Result) bool {
		// What must never happen is told whatever was asked for.
		return !b.options.wants(r.Name) && !strings.HasPrefix(r.Name, "safety.")
	})
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

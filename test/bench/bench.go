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

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moor-storage/moor/test/bench/audit"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// suite measures some results together.
type suite struct {
	// names of its results; one that ends in a dot is the beginning of them.
	names []string
	run   func(*bench, context.Context) error
	// on is the kind of bed that it is for.
	on kind
}

// kind is what a suite has to know of a bed.
type kind int

// The kinds of beds: as shipped, one that records beneath its target, one whose storage
// knows epochs, one whose hosts have pods as volumes, one whose DPUs have them too, and one
// whose functions outlive SNAP.
const (
	usual kind = iota
	recording
	fencing
	podded
	dpuPodded
	keeping
)

func kindOf(o devcluster.Options) kind {
	switch {
	case o.RecordBelow:
		return recording
	case o.Epochs:
		return fencing
	case o.DPUPods:
		return dpuPodded
	case o.Pods:
		return podded
	case o.KeepFunctions:
		return keeping
	}
	return usual
}

// recordedName is the one result of beds that record beneath their target.
const recordedName = "failover.recorded_below"

// measures are the parts of the checkout that a result depends on, as paths for
// git.
func measures(result string) []string {
	switch {
	case strings.HasPrefix(result, "extender."):
		return []string{"go.mod", "pkg/scheduler", "pkg/placement", "cmd/scheduler-extender", "deploy/scheduler"}
	case strings.HasPrefix(result, "journal."):
		return []string{"go.mod", "pkg/node/dpu/journal"}
	case strings.HasPrefix(result, "podvolumes.templates"):
		return []string{"go.mod", "api/pav", "internal/jinja", "pkg/provisioner/pods"}
	}
	return []string{"go.mod", "api", "cmd", "crds", "deploy", "hack/kube", "internal", "pkg", "reference", "test/devcluster"}
}

// suites are all, in the order in which they run.
func suites() []suite { return append(inProcess(), onBed()...) }

// inProcess are the suites that need no bed.
func inProcess() []suite {
	return []suite{
		{names: []string{"extender.prioritize.", "extender.allocations."}, run: (*bench).prioritize},
		{names: []string{"extender.http.5000", "extender.http.5000.rate"}, run: (*bench).overHTTP},
		{names: []string{"extender.replica_node_chosen"}, run: (*bench).replicaNode},
		{names: []string{"journal.write"}, run: (*bench).journalWrite},
		{names: []string{"podvolumes.templates"}, run: (*bench).podTemplates},
	}
}

// onBed are the suites that measure a bed that is up.
func onBed() []suite {
	return []suite{
		{names: []string{"provision"}, run: (*bench).provision},
		{names: []string{"attach.single", "detach.single", "attach.api_writes.host", "attach.api_writes.dpu"}, run: (*bench).attachSingle},
		{names: []string{"attach.parallel50", "attach.parallel50.all"}, run: (*bench).attachParallel},
		{names: []string{"attach.rolling_restart"}, run: (*bench).attachRolling},
		{names: []string{"hotplug.attach"}, run: (*bench).hotplugSingle},
		{names: []string{"hotplug.parallel31"}, run: (*bench).hotplugParallel},
		{names: []string{"fence.rpc"}, run: (*bench).fence},
		{names: []string{"snapshot.1gib", "clone.1gib"}, run: (*bench).copies},
		{names: []string{"expand.pod"}, run: (*bench).expand},
		{names: []string{"pod.new_volume"}, run: (*bench).pods},
		{names: []string{"idle.cpu."}, run: (*bench).idle},
		{names: []string{"failover.host_off.statefulset.", "failover.detect", "failover.fence", "failover.promote", "safety."}, run: (*bench).hostOffStatefulSet},
		{names: []string{"failover.host_off.deployment."}, run: (*bench).hostOffDeployment},
		{names: []string{"failover.drain.replica", "failover.drain.cold", "failover.drain.ratio"}, run: (*bench).drain},
		{names: []string{"failover.drain.storage2s."}, run: drainSlow(2)},
		{names: []string{"failover.drain.storage10s."}, run: drainSlow(10)},
		{names: []string{"failover.host_off.controllers_killed"}, run: (*bench).controllersKilled},
		{names: []string{"failover.host_off.leaders_lost"}, run: (*bench).leadersLost},
		{names: []string{"failover.volumes20"}, run: (*bench).volumes20},
		{names: []string{"failover.host_and_dpu_off"}, run: (*bench).hostAndDPUOff},
		{names: []string{"failover.power"}, run: (*bench).powerAlone},
		{names: []string{"failover.snap_killed"}, run: (*bench).snapKilled},
		{names: []string{"failover.snap_killed_with_state"}, run: (*bench).snapKilledWithState, on: keeping},
		{names: []string{recordedName}, run: (*bench).recordedBelow, on: recording},
		{names: []string{"epochs.attach.single", "epochs.detach.single"}, run: (*bench).attachUnderEpochs, on: fencing},
		{names: []string{"epochs.failover.path_cut"}, run: (*bench).pathCut, on: fencing},
		{names: []string{"podvolumes.new_volume", "podvolumes.bound50.all"}, run: (*bench).podVolumes, on: podded},
		{names: []string{"podvolumes.rss.controller", "podvolumes.rss.node"}, run: (*bench).podVolumesMany, on: podded},
		{names: []string{"podvolumes.dpu.new_volume"}, run: (*bench).podVolumesOfDPUs, on: dpuPodded},
		{names: []string{"rss.", "list.volumes1000"}, run: (*bench).many},
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
	driver  csispec.ControllerClient
	// invocation is when this run of the program began, by which its samples are
	// told from others'.
	invocation string
	measured   []*series
	// writes is who wrote what to the API servers in writeRuns attaches and
	// detaches.
	writes    []audit.Row
	writeRuns int
	// mode is how the bed attaches.
	mode string
}

func newBench(ctx context.Context, bed *devcluster.Cluster, o options) (*bench, error) {
	clients, err := kit.Connect(bed)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(layout.MachineDir(layout.Hub), "var-lib-moor", "csi.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true))) // a bed that is just up may not serve yet
	if err != nil {
		return nil, fmt.Errorf("reach the CSI controller at %s: %w", socket, err)
	}
	b := &bench{root: bed.Root(), bed: bed, clients: clients, options: o, conn: conn, driver: csispec.NewControllerClient(conn), invocation: results.NewInvocation()}
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
	failed = errors.Join(failed, b.runAll(ctx, b.fitting()))
	return errors.Join(failed, b.nothingLeft(context.WithoutCancel(ctx), before))
}

// fitting are the suites that this bed is for.
func (b *bench) fitting() []suite {
	return slices.DeleteFunc(onBed(), func(s suite) bool { return s.on != kindOf(b.bed.Options()) })
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
	err := kit.Until(ctx, "nothing is left of the volumes", func(ctx context.Context) (bool, error) {
		now, err := kit.Take(ctx, b.bed, b.clients)
		left = now.Less(before)
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("%w: %q", err, left)
	}
	return nil
}

// file is all that was measured, with the invocation given.
func (b *bench) file(of results.Invocation) results.File {
	out := results.File{Invocations: map[string]results.Invocation{b.invocation: of}}
	for _, s := range b.measured {
		out.Series = append(out.Series, s.Series)
	}
	return out
}

// printWrites tells who wrote what to the API servers.
func (b *bench) printWrites() error {
	if len(b.writes) == 0 {
		return nil
	}
	fmt.Printf("\nAPI writes of an attach and detach, over %d of them\n\n", b.writeRuns)
	return audit.Print(os.Stdout, b.writes, b.writeRuns)
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

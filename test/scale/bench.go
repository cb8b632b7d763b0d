package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/scale/fleet"
	"github.com/moor-storage/moor/test/scale/link"
	"github.com/moor-storage/moor/test/scale/program"
	"github.com/moor-storage/moor/test/scale/world"
)

// bench is one run.
type bench struct {
	o       options
	record  *record
	work    string
	world   *world.Clusters
	fleet   *fleet.Fleet
	history *history
	// programs in the order in which they start.
	programs []*program.Program
	user     *world.User
	extender string
	// links are between the programs and the API servers; none unless they are
	// disturbed.
	links []*link.Link
}

// measure makes the world, measures it, and takes it down.
func measure(ctx context.Context, o options, r *record) (err error) {
	b := &bench{o: o, record: r, work: o.work}
	if b.work == "" {
		if b.work, err = os.MkdirTemp("", "moor-scale-"); err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		defer os.RemoveAll(b.work)
	}
	if err := os.MkdirAll(b.work, 0o755); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	log, err := os.Create(filepath.Join(b.work, "simulation.log"))
	if err != nil {
		return fmt.Errorf("make the log of the simulation: %w", err)
	}
	defer log.Close()
	logger := funcr.New(func(prefix, args string) { fmt.Fprintln(log, time.Now().UTC().Format(time.TimeOnly), prefix, args) }, funcr.Options{})
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	ctx, stop := context.WithCancelCause(ctx)
	defer b.close()
	defer stop(nil)
	if err := b.begin(ctx, stop); err != nil {
		return err
	}
	err = b.run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("the simulation ended early: %w", cause)
	}
	return err
}

// run loads the world and measures in it what is wanted.
func (b *bench) run(ctx context.Context) error {
	if err := b.load(ctx); err != nil {
		return fmt.Errorf("load the world: %w", err)
	}
	if b.o.disturbed {
		return b.disturbed(ctx)
	}
	if err := b.startAll(ctx); err != nil {
		return err
	}
	if b.o.measures(settled) {
		if err := b.settled(ctx); err != nil {
			b.say("  %v", err)
			b.record.fail(count("settled.writes"), err)
		}
	}
	b.each(ctx, "operations", b.operations())
	return nil
}

// begin starts API servers and all that is simulated but the hosts.
func (b *bench) begin(ctx context.Context, stop context.CancelCauseFunc) (err error) {
	b.say("starting two API servers")
	if b.world, err = world.Start(ctx, b.work, b.o.watchCaches); err != nil {
		return err
	}
	b.fleet, b.history = fleet.New(b.world.Unlimited, b.o.slow), newHistory()
	vendor, driver := "unix://"+filepath.Join(b.work, "vendor.sock"), "unix://"+filepath.Join(b.work, "csi.sock")
	conn, err := grpc.NewClient(driver, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return fmt.Errorf("reach the CSI controller: %w", err)
	}
	b.user = &world.User{Clusters: b.world, Driver: csispec.NewControllerClient(conn)}
	for _, play := range []func(context.Context) error{
		b.fleet.Answer, b.fleet.Bind, b.user.Release, func(ctx context.Context) error { return fleet.ServeVendor(ctx, vendor) },
		func(ctx context.Context) error { return b.history.watchClaims(ctx, b.world.Unlimited.DPU) },
		func(ctx context.Context) error { return b.history.watchRequests(ctx, b.world.Unlimited.Host) },
	} {
		go func() {
			if err := play(ctx); err != nil {
				stop(err)
			}
		}()
	}
	return b.list(ctx, vendor, driver)
}

// close ends everything.
func (b *bench) close() {
	for _, p := range b.programs {
		p.Stop()
	}
	if b.fleet != nil {
		b.fleet.Wait()
	}
	for _, l := range b.links {
		l.Close()
	}
	if b.world != nil {
		b.world.Stop()
	}
}

// list is the programs with their flags: those of deploy/, as far as they do not
// depend on where they run.
func (b *bench) list(ctx context.Context, vendor, driver string) error {
	config, err := b.kubeconfigs(ctx)
	if err != nil {
		return err
	}
	if b.extender, err = freeport.Address(); err != nil {
		return err
	}
	attachments := float64(b.o.hosts * b.o.volumes)
	elect := b.o.election()
	slow := func(d time.Duration) string { return time.Duration(float64(d) * b.o.slow).String() }
	b.programs = []*program.Program{
		{Name: "snap-controller", Account: "snap-controller", Reconciles: attachments, Args: slices.Concat(elect, []string{
			"--kubeconfig=" + config["dpu/snap-controller"], "--namespace=" + kit.Namespace,
		})},
		{Name: "snap-external-attacher", Account: "snap-external-attacher", Reconciles: attachments, Args: slices.Concat(elect, []string{
			"--kubeconfig=" + config["dpu/snap-external-attacher"], "--namespace=" + kit.Namespace, "--csi-address=" + vendor,
		})},
		{Name: "snap-csi-plugin", Account: "snap-csi-plugin-controller", HealthIsMetrics: true, Args: []string{
			"--mode=controller", "--kubeconfig=" + config["host/snap-csi-plugin-controller"], "--namespace=" + kit.Namespace, "--bind-address=" + driver,
		}},
		{Name: "scheduler-extender", Account: "scheduler-extender", Args: []string{
			"--kubeconfig=" + config["host/scheduler-extender"], "--namespace=" + kit.Namespace, "--bind-address=" + b.extender,
		}},
		{Name: "snap-host-controller", Account: "snap-host-controller", Reconciles: attachments, Args: slices.Concat(elect, []string{
			"--kubeconfig=" + config["host/snap-host-controller"], "--dpu-cluster-kubeconfig=" + config["dpu/snap-host-controller"],
			"--namespace=" + kit.Namespace, "--target-namespace=" + kit.Namespace,
			"--heartbeat-timeout=" + slow(nodehealth.DefaultTimeout), "--silence-timeout=" + slow(nodehealth.DefaultSilence),
			"--failover-budget=" + strconv.Itoa(b.o.budget), "--failover-zone-budget=" + strconv.Itoa(b.o.budget),
		})},
	}
	return nil
}

// kubeconfigs are files that act as the accounts of the programs, by cluster and
// account. If the programs are disturbed, they lead over links.
func (b *bench) kubeconfigs(ctx context.Context) (map[string]string, error) {
	out, over := map[string]string{}, map[string]string{}
	for _, cluster := range []string{apiserver.Host, apiserver.DPU} {
		over[cluster] = b.world.Address(cluster)
		if !b.o.disturbed {
			continue
		}
		l, err := link.Start(ctx, over[cluster])
		if err != nil {
			return nil, err
		}
		b.links = append(b.links, l)
		over[cluster] = l.Address()
	}
	for _, of := range []struct{ cluster, account string }{
		{apiserver.DPU, "snap-controller"},
		{apiserver.DPU, "snap-external-attacher"},
		{apiserver.DPU, "snap-host-controller"},
		{apiserver.Host, "snap-csi-plugin-controller"},
		{apiserver.Host, "scheduler-extender"},
		{apiserver.Host, "snap-host-controller"},
	} {
		path, err := b.world.KubeconfigFile(of.cluster, of.account, over[of.cluster])
		if err != nil {
			return nil, err
		}
		out[of.cluster+"/"+of.account] = path
	}
	return out, nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf(time.Now().UTC().Format(time.TimeOnly)+" "+format+"\n", args...)
}

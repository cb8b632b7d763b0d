package devcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/moor-storage/moor/test/devcluster/cleanup"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/packages"
	"github.com/moor-storage/moor/test/devcluster/pki"
	"github.com/moor-storage/moor/test/devcluster/record"
)

// bringUp does the work of Up in order.
func (c *Cluster) bringUp(ctx context.Context, log *reporter) error {
	if err := c.prepare(ctx, log); err != nil {
		return err
	}
	if err := c.bootMachine(ctx, c.hub()); err != nil {
		return err
	}
	log.say("hub is up; starting the control planes and %d hosts with DPUs", c.meta.Options.Nodes)
	if err := c.startMachines(ctx, log); err != nil {
		return err
	}
	if err := c.startNodes(ctx, log); err != nil {
		return err
	}
	c.meta.Ready = true
	if err := record.Save(metaRecord, c.meta); err != nil {
		return err
	}
	if c.meta.Options.Bare || c.meta.Options.Deploy == nil {
		return nil
	}
	log.say("deploying Moor")
	return c.meta.Options.Deploy(ctx, c, log)
}

// prepare cleans, builds and writes all files, so that what follows only starts
// processes.
func (c *Cluster) prepare(ctx context.Context, log *reporter) error {
	root, err := FindRoot()
	if err != nil {
		return err
	}
	c.meta.Root = root
	if err := packages.Install(ctx, root, log); err != nil {
		return err
	}
	if err := cleanup.Clean(ctx); err != nil {
		return err
	}
	log.say("no earlier bed is left")
	if c.meta.KubeBinDir, err = kubebuild.Build(ctx, root, c.meta.Options.Kubernetes, nil, log); err != nil {
		return err
	}
	c.meta.Source = ReadSource(ctx, root)
	if err := c.buildCommands(ctx, log); err != nil {
		return err
	}
	if err := c.makeDirs(); err != nil {
		return err
	}
	if err := checkRoom(); err != nil {
		return err
	}
	if err := c.mountTarget(ctx); err != nil {
		return err
	}
	if err := cleanup.SaveKernelSettings(); err != nil {
		return err
	}
	if err := c.writeFiles(ctx); err != nil {
		return err
	}
	return record.Save(metaRecord, c.meta)
}

// buildCommands builds the commands of the checkout, or only moor-dev for a
// bare bed. They live in the cache, since /run often forbids execution, and
// since Go then only links again what has changed.
func (c *Cluster) buildCommands(ctx context.Context, log *reporter) error {
	cache, err := kubebuild.CacheDir()
	if err != nil {
		return err
	}
	c.meta.BinDir = filepath.Join(cache, "commands")
	if err := os.MkdirAll(c.meta.BinDir, 0o755); err != nil {
		return fmt.Errorf("make the directory of Moor's programs: %w", err)
	}
	what := []string{"./cmd/...", "./reference/cmd/...", "./test/cmd/..."}
	if c.meta.Options.Bare {
		what = []string{"./test/cmd/moor-dev"}
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", kubebuild.Tags, "-o", c.meta.BinDir + "/"}, what...)
	err = kubebuild.Go(ctx, c.meta.Root, strings.Join(what, " "), log, args...)
	if err != nil || c.meta.Options.Bare {
		return err
	}
	c.meta.Snapshotter, err = kubebuild.Snapshotter(ctx, c.meta.Root, c.meta.BinDir, log)
	return err
}

func (c *Cluster) makeDirs() error {
	for _, dir := range []string{layout.DataDir, layout.TargetSource(), filepath.Join(layout.StateDir, "logs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the bed's directories: %w", err)
		}
	}
	for _, dir := range append(machineDirs(), layout.TargetDir) {
		if err := cleanup.MakeMountpoint(dir); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes keys, images and configurations.
func (c *Cluster) writeFiles(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range c.planes() {
		g.Go(func() error { return c.writePKI(p) })
	}
	g.Go(func() error { return c.writeImages(ctx) })
	g.Go(c.writeControlPlaneFiles)
	return g.Wait()
}

func (c *Cluster) writePKI(p plane) error {
	dir := p.pkiDir()
	if err := pki.Generate(dir, p.pki(), time.Now()); err != nil {
		return fmt.Errorf("make the keys of the %s cluster: %w", p.name, err)
	}
	admin, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return fmt.Errorf("read back the kubeconfig of the %s cluster: %w", p.name, err)
	}
	if err := os.WriteFile(c.Kubeconfig(p.name), admin, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig of the %s cluster: %w", p.name, err)
	}
	return nil
}

// startMachines starts, all at once, the control planes and every machine.
func (c *Cluster) startMachines(ctx context.Context, log *reporter) error {
	for _, p := range c.planes() {
		if err := c.loadConfig(p.name); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startControlPlanes(ctx, log) })
	for _, b := range c.pairs() {
		g.Go(func() error {
			if err := c.bootMachine(ctx, b); err != nil || b.cluster == "" {
				return err
			}
			return c.startContainerd(ctx, b)
		})
	}
	return g.Wait()
}

// startNodes makes nodes of the machines and waits until all clusters can be
// used.
func (c *Cluster) startNodes(ctx context.Context, log *reporter) error {
	starts, startCtx := errgroup.WithContext(ctx)
	for _, b := range c.pairs() {
		starts.Go(func() error { return c.join(startCtx, b) })
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	waits, waitCtx := errgroup.WithContext(ctx)
	for _, p := range c.planes() {
		waits.Go(func() error { return c.awaitNodes(waitCtx, p) })
		waits.Go(func() error { return c.awaitServiceAccount(waitCtx, p) })
	}
	if err := waits.Wait(); err != nil {
		return err
	}
	log.say("%d nodes are Ready", len(c.kubelets()))
	return nil
}

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/kit"
)

const (
	// idlePods is how many pods with a volume each host has, which do nothing with it.
	idlePods = 10
	// idleWindow is for how long processor time is counted for one sample: the kernel counts it in
	// hundredths of a second, and a heartbeat is every ten.
	idleWindow = 30 * time.Second
)

// idle measures what is used of a processor where nothing happens: by Moor's programs on each host,
// and on each DPU but for SNAP, while pods with volumes run. It begins once what they did to start is over.
func (b *bench) idle(ctx context.Context) error {
	if err := b.wantStock(); err != nil {
		return err
	}
	if err := b.makeNamespace(ctx); err != nil {
		return err
	}
	if err := b.idlePods(ctx); err != nil {
		return err
	}
	if err := pause(ctx, idleWindow); err != nil {
		return err
	}
	for range b.options.times(10) {
		if err := b.idleSample(ctx); err != nil {
			return err
		}
	}
	return nil
}

// idlePods makes the pods, and waits until all are ready.
func (b *bench) idlePods(ctx context.Context) error {
	nodes := b.bed.Nodes()
	var all []*corev1.Pod
	for i := range idlePods * len(nodes) {
		p := pod(fmt.Sprintf("idle-%d", i))
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodes[i%len(nodes)]}
		all = append(all, p)
	}
	err := each(len(all), func(i int) error {
		for _, o := range []client.Object{claim(all[i].Name), all[i]} {
			if err := b.clients.Host.Create(ctx, o); err != nil {
				return fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range all {
		if _, err := kit.AwaitRunning(ctx, b.clients.Host, client.ObjectKeyFromObject(p), "", patience); err != nil {
			return err
		}
	}
	return nil
}

// idleSample adds what each host and each DPU uses within one window.
func (b *bench) idleSample(ctx context.Context) error {
	before, err := b.used()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, idleWindow); err != nil {
		return err
	}
	after, err := b.used()
	if err != nil {
		return err
	}
	took := time.Since(begin)
	for _, name := range []string{"host", "dpu"} {
		machines := b.bed.Nodes()
		if name == "dpu" {
			machines = b.bed.DPUs()
		}
		for _, m := range machines {
			b.series("idle.cpu."+name, results.Share, results.Worst).add(100 * float64(after[m]-before[m]) / float64(took))
		}
	}
	return nil
}

// used is the processor time that Moor's programs have used on each host and each DPU: SNAP is none of them.
func (b *bench) used() (map[string]time.Duration, error) {
	processes, err := b.bed.Processes()
	if err != nil {
		return nil, err
	}
	out := map[string]time.Duration{}
	for _, p := range processes {
		program := filepath.Base(p.Argv[0])
		if filepath.Dir(p.Argv[0]) != b.bed.BinDir() || program == "snap-emulator" || !slices.Contains(append(b.bed.Nodes(), b.bed.DPUs()...), p.Machine) {
			continue
		}
		if !p.Identity.Alive() {
			return nil, fmt.Errorf("process %s does not run: %s", p.Name, strings.Join(p.Argv, " "))
		}
		stat, err := procs.ReadStat(p.Identity.PID)
		if err != nil {
			return nil, fmt.Errorf("process %s: %w", p.Name, err)
		}
		out[p.Machine] += stat.CPU
	}
	return out, nil
}

package dpu

import (
	"context"
	"sync"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// probeTimeout bounds the question how a service is: one that hangs must not
// make the DPU look dead.
const probeTimeout = 3 * time.Second

// State says how this DPU is: the functions of its SNAP services, and its
// vendor plugins. What does not answer is reported as not ready; that is no
// error. All are asked at once. After HostChanged it answers at once, with what
// it knew of the others, and asks to be asked again.
func (r *Reconciler) State(ctx context.Context) (moorv1alpha1.DPUState, error) {
	if last := r.last.Load(); r.hurried.Swap(false) && last != nil {
		out := *last.DeepCopy()
		out.Host = r.o.Host()
		r.tellChange()
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	plugins, err := r.o.Plugins.names()
	if err != nil {
		return moorv1alpha1.DPUState{}, err
	}
	out := moorv1alpha1.DPUState{Plugins: make([]moorv1alpha1.PluginState, len(plugins))}
	var asking sync.WaitGroup
	for i, name := range plugins {
		asking.Go(func() { out.Plugins[i] = r.pluginState(ctx, name) })
	}
	asking.Go(func() { out.Functions, out.SNAPReady = r.functions(ctx) })
	asking.Wait()
	if r.o.Host != nil {
		out.Host = r.o.Host()
		r.last.Store(out.DeepCopy())
	}
	return out, nil
}

func (r *Reconciler) pluginState(ctx context.Context, name string) moorv1alpha1.PluginState {
	v, err := r.o.Plugins.get(ctx, name)
	if err == nil {
		err = r.o.Plugins.lost(name, v.Probe(ctx))
	}
	if err != nil {
		return moorv1alpha1.PluginState{Name: name, Message: err.Error()}
	}
	return moorv1alpha1.PluginState{Name: name, Ready: true}
}

// functions adds up the functions of all SNAP services; ready is whether there
// is one and all answered.
func (r *Reconciler) functions(ctx context.Context) (counts []moorv1alpha1.FunctionCount, ready bool) {
	names, err := r.o.Providers.names()
	ready = err == nil && len(names) > 0
	total := map[provisioner.FunctionType]provisioner.FunctionCount{}
	for _, name := range names {
		all, err := r.o.Providers.get(name).Functions(ctx)
		ready = ready && err == nil
		for _, c := range all {
			sum := total[c.Type]
			total[c.Type] = provisioner.FunctionCount{Type: c.Type, Total: sum.Total + c.Total, Free: sum.Free + c.Free}
		}
	}
	for _, kind := range []provisioner.FunctionType{provisioner.PF, provisioner.VF} {
		if c, ok := total[kind]; ok {
			counts = append(counts, moorv1alpha1.FunctionCount{Type: string(kind), Total: int64(c.Total), Free: int64(c.Free)})
		}
	}
	return counts, ready
}

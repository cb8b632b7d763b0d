package dpu

import (
	"context"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// probeTimeout bounds the question how a service is: one that hangs must not
// make the DPU look dead.
const probeTimeout = 3 * time.Second

// State says how this DPU is: the functions of its SNAP services, and its
// vendor plugins. What does not answer is reported as not ready; that is no
// error. Plugins are not asked: whoever discovers them watches over them. After HostChanged it answers at once, with what
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
	out := moorv1alpha1.DPUState{Plugins: r.o.Plugins.States()}
	out.Functions, out.SNAPReady = r.functions(ctx)
	if r.o.Host != nil {
		out.Host = r.o.Host()
		r.last.Store(out.DeepCopy())
	}
	return out, nil
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
	for _, kind := range []provisioner.FunctionType{provisioner.PF, provisioner.VF, provisioner.Hotplug} {
		if c, ok := total[kind]; ok {
			counts = append(counts, moorv1alpha1.FunctionCount{Type: string(kind), Total: int64(c.Total), Free: int64(c.Free)})
		}
	}
	return counts, ready
}

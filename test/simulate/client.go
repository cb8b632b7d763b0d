package simulate

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/engine"
)

// errCutOff is the error of a call to an API server that is not reached.
var errCutOff = errors.New("no route to the API server")

// api is one API server as a process uses it: reads are answered by its view, writes by
// the server, each when the engine lets it.
type api struct {
	client.Client // nil: what is not implemented here, no reconciler uses
	life          *life
	link          *link
}

// live reads from the server itself.
type live struct{ api }

func (l *life) cluster(k *link) kube.Cluster {
	a := api{life: l, link: k}
	return kube.Cluster{Client: a, Live: live{a}}
}

// Get reads the view.
func (a api) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return a.link.view.Get(k, o)
}

// List reads the view.
func (a api) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	return a.link.view.List(list, options...)
}

// Get reads the server.
func (l live) Get(ctx context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	got := o.DeepCopyObject().(client.Object)
	key := cluster.KeyOf(got)
	err := l.call(ctx, engine.Read, fmt.Sprintf("reads %s %s", key.Kind, k.Name), func() error { return l.link.server.Get(k, got) })
	if err == nil {
		cluster.Assign(o, got)
	}
	return err
}

// List reads the server.
func (l live) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	got := list.DeepCopyObject().(client.ObjectList)
	err := l.call(ctx, engine.Read, fmt.Sprintf("lists %T", list), func() error { return l.link.server.List(got, options...) })
	if err == nil {
		cluster.Assign(list, got)
	}
	return err
}

// call has the server asked, if it is reached then.
func (a api) call(ctx context.Context, kind engine.Kind, what string, do func() error) error {
	sent := a.link.server.Restores()
	return a.life.Call(ctx, kind, what, func() error {
		if a.link.cut() || a.link.server.Restores() != sent {
			return errCutOff
		}
		return do()
	})
}

// write has an object written, as it is now.
func (a api) write(ctx context.Context, verb string, o client.Object, do func(client.Object) error) error {
	sent := o.DeepCopyObject().(client.Object)
	key := cluster.KeyOf(o)
	what := fmt.Sprintf("%s %s", verb, key)
	err := a.call(ctx, engine.Write, what, func() error {
		err := do(sent)
		if err == nil {
			a.life.Tell("%s%s", what, a.link.told(key))
		} else {
			a.life.Tell("%s: %v", what, err)
		}
		return err
	})
	if err == nil {
		cluster.Assign(o, sent)
	}
	return err
}

// Create makes an object.
func (a api) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return a.write(ctx, "creates", o, a.link.server.Create)
}

// Update replaces an object.
func (a api) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return a.write(ctx, "updates", o, a.link.server.Update)
}

// Patch merges into an object.
func (a api) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	return a.write(ctx, "patches", o, func(o client.Object) error { return a.link.server.Patch(o, data) })
}

// Delete deletes an object.
func (a api) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return a.write(ctx, "deletes", o, func(o client.Object) error { return a.link.server.Delete(o, options...) })
}

// Status writes statuses.
func (a api) Status() client.SubResourceWriter { return status{api: a} }

type status struct {
	client.SubResourceWriter // nil
	api                      api
}

// Update replaces a status.
func (s status) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.api.write(ctx, "updates status of", o, s.api.link.server.UpdateStatus)
}

// Patch merges into a status.
func (s status) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	return s.api.write(ctx, "patches status of", o, func(o client.Object) error { return s.api.link.server.PatchStatus(o, data) })
}

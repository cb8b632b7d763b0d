package plugins

import (
	"context"
	"time"

	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// track watches over one socket until ctx ends: it checks the plugin, and again
// when there is a reason to.
func (r *Registry) track(ctx context.Context, name string, e *entry) {
	for failures := 0; ctx.Err() == nil; {
		client, vetted, err := r.check(ctx, name)
		if ctx.Err() != nil {
			return
		}
		r.record(ctx, name, e, vetted, err)
		if err == nil {
			failures = 0
			r.watchOver(ctx, client, e)
		} else {
			failures++
			r.rest(ctx, pause(failures))
		}
	}
}

func (r *Registry) check(ctx context.Context, name string) (Client, vendorplugin.Vetted, error) {
	client, err := r.o.Open(name)
	if err != nil {
		return nil, vendorplugin.Vetted{}, err
	}
	vetted, err := vendorplugin.Vet(ctx, client)
	return client, vetted, err
}

// record notes what the check of a socket said, if that socket still counts.
func (r *Registry) record(ctx context.Context, name string, e *entry, vetted vendorplugin.Vetted, err error) {
	r.update(ctx, func() {
		if r.entries[name] != e {
			return
		}
		if e.vetted, e.err = &vetted, err; err != nil {
			e.vetted = nil
		}
	})
}

// watchOver returns when a plugin that works has to be checked again: when its
// connection is lost, it is under suspicion, or a period has passed; but not at
// once, so that one that drops its connections is not asked without end.
func (r *Registry) watchOver(ctx context.Context, client Client, e *entry) {
	watching, stop := context.WithCancel(ctx)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_ = client.AwaitLoss(watching) // an error too means that there is no connection to watch
	}()
	timer := r.o.Clock.NewTimer(r.o.Period)
	began := r.o.Clock.Now()
	select {
	case <-ctx.Done():
	case <-lost:
	case <-e.suspect:
	case <-timer.C():
	}
	timer.Stop()
	stop()
	<-lost
	r.rest(ctx, firstPause-r.o.Clock.Since(began))
}

// rest waits.
func (r *Registry) rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := r.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// Command scheduler-extender tells kube-scheduler which nodes cannot serve a
// pod's volumes, and which are nearest to them, from what it watches in the
// host cluster, and has refused pods tried again when a node can serve them. Every replica answers for itself.
package main

import (
	"context"
	"time"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
)

// options are the flags.
type options struct {
	flags        kube.Flags
	kubeconfig   string
	namespace    string
	drivers      []string
	bindAddress  string
	tlsCert      string
	tlsKey       string
	clientCA     string
	timeout      time.Duration
	maxBodyBytes int64
	probePeriod  time.Duration
}

func main() {
	var o options
	daemon.Main("scheduler-extender", o.bind, o.run)
}

func (o *options) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	mgr, err := o.manager()
	if err != nil {
		return err
	}
	if err := o.setUp(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

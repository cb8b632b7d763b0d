package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/endpoint"
	"github.com/moor-storage/moor/pkg/provisioner"
	helperpods "github.com/moor-storage/moor/pkg/provisioner/pods"
)

// drivers serves a CSI endpoint for each PavProvisioner that this node stages volumes of, or has staged
// volumes of.
type drivers struct {
	*Agent
	stagings ask.Awaiter
	// base ends with the agent: an endpoint outlives the pass that started it.
	base context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	stopped bool
	running map[string]*driver
}

// driver is an endpoint that is served.
type driver struct {
	stop context.CancelFunc
	done chan struct{}
}

// The pauses between the tries to serve an endpoint.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// marker is a file beside the socket of a driver, by which an agent knows after a crash that it is its.
const marker = ".moor-pods"

func newDrivers(a *Agent) *drivers {
	return &drivers{Agent: a, running: map[string]*driver{}}
}

// within has all endpoints end with ctx.
func (d *drivers) within(ctx context.Context) { d.base, d.stop = context.WithCancel(ctx) }

func (d *drivers) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("poddriver").
		For(&pavv1alpha1.PavProvisioner{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(d.all), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&moorv1alpha1.PodStaging{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{kube.RequestFor("", o.(*moorv1alpha1.PodStaging).Spec.ProvisionerName)}
		})).
		Complete(kube.Retrying(d))
}

// all are the provisioners that there are, that are served, and that a process before this one served.
func (d *drivers) all(ctx context.Context, _ client.Object) []reconcile.Request {
	out := kube.RequestsOf(ctx, d.cluster.Client, &pavv1alpha1.PavProvisionerList{})
	d.mu.Lock()
	for name := range d.running {
		out = append(out, kube.RequestFor("", name))
	}
	d.mu.Unlock()
	marked, err := filepath.Glob(filepath.Join(d.o.Kubelet, "plugins", "*", marker))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "look for endpoints that were served before")
	}
	for _, path := range marked {
		out = append(out, kube.RequestFor("", filepath.Base(filepath.Dir(path))))
	}
	return out
}

// Start ends all endpoints when ctx ends, and waits for them.
func (d *drivers) Start(ctx context.Context) error {
	<-ctx.Done()
	d.mu.Lock()
	d.stopped = true
	all := d.running
	d.running = map[string]*driver{}
	d.mu.Unlock()
	d.stop()
	for _, each := range all {
		<-each.done
	}
	d.counts.endpoints.Set(0)
	return nil
}

// Reconcile starts or ends the endpoint of one provisioner.
func (d *drivers) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := req.Name
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return reconcile.Result{}, nil // the API server lets no such provisioner be made
	}
	wanted, err := d.wanted(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wanted {
		d.start(name)
		return reconcile.Result{}, nil
	}
	d.end(name)
	return reconcile.Result{}, d.forget(name)
}

// wanted reports whether an endpoint is needed: the node stages volumes, or it has to undo what it has
// staged, also of a provisioner that is gone or has another selector by now.
func (d *drivers) wanted(ctx context.Context, name string) (bool, error) {
	if err := d.serves(ctx, name); err == nil || !errors.Is(err, provisioner.ErrPrecondition) {
		return err == nil, err
	}
	var p pavv1alpha1.PavProvisioner
	found, err := kube.Find(ctx, d.cluster.Client, client.ObjectKey{Name: name}, &p)
	if err != nil || found && !p.DeletionTimestamp.IsZero() {
		return err == nil, err
	}
	var list moorv1alpha1.PodStagingList
	if err := d.cluster.Client.List(ctx, &list); err != nil {
		return false, fmt.Errorf("look whether volumes of %s are staged here: %w", name, err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.ProvisionerName == name {
			return true, nil
		}
	}
	return false, nil
}

// serves returns why this node stages no more volumes of a provisioner, which is an ErrPrecondition.
func (d *drivers) serves(ctx context.Context, name string) error {
	var p pavv1alpha1.PavProvisioner
	found, err := kube.Find(ctx, d.cluster.Client, client.ObjectKey{Name: name}, &p)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("there is no PavProvisioner %s: %w", name, provisioner.ErrPrecondition)
	case !p.DeletionTimestamp.IsZero():
		return fmt.Errorf("PavProvisioner %s is being deleted: %w", name, provisioner.ErrPrecondition)
	}
	var node corev1.Node
	if found, err = kube.Find(ctx, d.cluster.Client, client.ObjectKey{Name: d.o.Node}, &node); err != nil {
		return err
	}
	if selector := p.Spec.VolumeStaging.NodeSelector; !found || !helperpods.StagesOn(selector, node.Labels) {
		return fmt.Errorf("PavProvisioner %s stages volumes on nodes with the labels %v (volumeStaging.nodeSelector), and node %s is none: let its pods have the same nodeSelector: %w", name, selector, d.o.Node, provisioner.ErrPrecondition)
	}
	return nil
}

// start serves an endpoint, unless it is served.
func (d *drivers) start(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || d.running[name] != nil {
		return
	}
	ctx, stop := context.WithCancel(d.base)
	each := &driver{stop: stop, done: make(chan struct{})}
	d.running[name] = each
	d.counts.endpoints.Set(float64(len(d.running)))
	go func() {
		defer close(each.done)
		d.keep(ctx, name)
	}()
}

// end ends an endpoint, and waits for it.
func (d *drivers) end(name string) {
	d.mu.Lock()
	each := d.running[name]
	delete(d.running, name)
	d.counts.endpoints.Set(float64(len(d.running)))
	d.mu.Unlock()
	if each != nil {
		each.stop()
		<-each.done
	}
}

// keep serves an endpoint until ctx ends, again after each failure.
func (d *drivers) keep(ctx context.Context, name string) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := d.clock.Now()
		err := d.serve(ctx, name)
		if ctx.Err() != nil {
			return
		}
		if d.clock.Since(began) > longestPause {
			pause = firstPause
		}
		d.log.Error(err, "serve the CSI endpoint of a PavProvisioner; it is tried again", "driver", name, "after", pause)
		timer := d.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// directory is where a driver has its socket.
func (d *drivers) directory(name string) string { return filepath.Join(d.o.Kubelet, "plugins", name) }

func (d *drivers) socket(name string) string { return filepath.Join(d.directory(name), "csi.sock") }

// serve serves an endpoint and has the kubelet know it, until ctx ends or one of both fails.
func (d *drivers) serve(ctx context.Context, name string) error {
	if err := os.MkdirAll(d.directory(name), 0o750); err != nil {
		return fmt.Errorf("make the directory of the endpoint: %w", err)
	}
	if err := os.WriteFile(filepath.Join(d.directory(name), marker), nil, 0o600); err != nil {
		return fmt.Errorf("mark the directory of the endpoint: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening, failed := make(chan struct{}), make(chan error, 1)
	service := endpoint.New(endpoint.Options{
		Driver: name, Node: d.o.Node, Boot: d.o.Boot, Client: d.cluster.Client, Live: d.cluster.Live, Stagings: d.stagings, Targets: d.targets,
		Serves: func(ctx context.Context) error { return d.serves(ctx, name) },
	})
	go func() {
		failed <- csiserver.Serve(ctx, "unix://"+d.socket(name), func(s *grpc.Server) {
			csispec.RegisterIdentityServer(s, csiserver.NewIdentity(name, d.o.Version, nil))
			csispec.RegisterNodeServer(s, service)
			close(listening)
		}, csiserver.Options{Logger: d.log.WithValues("driver", name), Metrics: d.o.Metrics, Key: endpoint.Key})
	}()
	select {
	case err := <-failed:
		return err
	case <-listening:
	}
	registered := make(chan error, 1)
	go func() {
		defer cancel()
		registered <- d.o.Registrar.Run(ctx, name, d.socket(name))
	}()
	err := <-failed
	cancel()
	return errors.Join(err, <-registered)
}

// forget removes what a process has left of an endpoint, if it was an agent.
func (d *drivers) forget(name string) error {
	mark := filepath.Join(d.directory(name), marker)
	if _, err := os.Lstat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := d.o.Registrar.Forget(name); err != nil {
		return fmt.Errorf("take driver %s from the kubelet: %w", name, err)
	}
	for _, path := range []string{d.socket(name), mark, d.directory(name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is left of the endpoint of %s: %w", name, err)
		}
	}
	return nil
}

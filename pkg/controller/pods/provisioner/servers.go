package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/volume"
)

const (
	// workers are how many claims, and how many volumes, of a provisioner are worked on at once.
	workers = 10
	// firstRetry and lastRetry bound how long it takes until a claim or volume is tried again.
	firstRetry, lastRetry = 5 * time.Second, 5 * time.Minute
)

// indexUID is the name of the index by which the library looks for claims.
const indexUID = "uid"

// servers runs one provision controller for each provisioner, over informers that all of them share.
type servers struct {
	client  kubernetes.Interface
	claims  toolscache.SharedIndexInformer
	volumes toolscache.SharedIndexInformer
	classes toolscache.SharedIndexInformer
	// driver makes what a controller works with.
	driver func(name string) controller.Provisioner

	// started is closed once this process may act, which is while ctx lasts.
	started chan struct{}
	ctx     context.Context

	mu      sync.Mutex
	indexed bool
	running map[string]*server
}

// server is one provision controller that runs.
type server struct {
	claims, volumes tap
	cancel          context.CancelFunc
	ended           chan struct{}
}

// Start lets controllers run until ctx ends, and returns once all have.
func (s *servers) Start(ctx context.Context) error {
	s.ctx = ctx
	close(s.started)
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.running {
		one.stop()
		delete(s.running, name)
	}
	return nil
}

// serve has a provision controller run for a provisioner. It waits until this process may act, which the
// manager has it do at the same time as the reconcilers.
func (s *servers) serve(ctx context.Context, name string) error {
	select {
	case <-s.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case s.running[name] != nil:
		return nil
	}
	if !s.indexed {
		if err := s.claims.AddIndexers(toolscache.Indexers{indexUID: byUID}); err != nil {
			return fmt.Errorf("index claims by their UID: %w", err)
		}
		s.indexed = true
	}
	one, err := s.begin(name)
	if err != nil {
		return fmt.Errorf("serve provisioner %s: %w", name, err)
	}
	if s.running == nil {
		s.running = map[string]*server{}
	}
	s.running[name] = one
	return nil
}

// begin has a controller run. The library ends the process if an option is wrong or if an index is
// there already, so its options are constants, and the claims come with an index.
func (s *servers) begin(name string) (*server, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	one := &server{
		claims: tap{SharedIndexInformer: s.claims}, volumes: tap{SharedIndexInformer: s.volumes}, cancel: cancel, ended: make(chan struct{}),
	}
	var working sync.WaitGroup
	c := controller.NewProvisionController(
		ctx, s.client, name, s.driver(name),
		controller.LeaderElection(false),
		controller.MetricsPort(0),
		controller.ResyncPeriod(0), // what fails is tried again, and what is waited for nudges
		controller.Threadiness(workers),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.AddFinalizer(true), // a volume is removed also if its PersistentVolume is deleted first
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
		controller.CreateProvisionedPVLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
		controller.ClaimsInformer(&one.claims),
		controller.VolumesInformer(&one.volumes),
		controller.ClassesInformer(s.classes),
	)
	c.ControllerWaitGroup(&working)
	go func() {
		defer close(one.ended)
		c.Run(ctx)
		working.Wait()
	}()
	if err := errors.Join(one.claims.err, one.volumes.err); err != nil {
		one.stop()
		return nil, err
	}
	return one, nil
}

// stop ends the controller of a provisioner, if there is one.
func (s *servers) stop(name string) {
	s.mu.Lock()
	one := s.running[name]
	delete(s.running, name)
	s.mu.Unlock()
	if one != nil {
		one.stop()
	}
}

func (s *server) stop() {
	s.claims.remove()
	s.volumes.remove()
	s.cancel()
	<-s.ended
}

// nudge has the controller of a volume look at its claim and at its PersistentVolume, since what they
// wait for has happened.
func (s *servers) nudge(v *moorv1alpha1.PodVolume) {
	s.mu.Lock()
	one := s.running[v.Spec.ProvisionerName]
	s.mu.Unlock()
	if one == nil {
		return
	}
	claims, err := s.claims.GetIndexer().ByIndex(indexUID, string(volume.ClaimUID(v)))
	if err == nil {
		one.claims.again(claims...)
	}
	if pv, found, err := s.volumes.GetStore().GetByKey(v.Name); found && err == nil {
		one.volumes.again(pv)
	}
}

// ends reports whether a volume has come to something that its claim or its PersistentVolume waits for.
func ends(v *moorv1alpha1.PodVolume) bool {
	return slices.Contains([]moorv1alpha1.PodVolumePhase{
		moorv1alpha1.PodVolumeCreated, moorv1alpha1.PodVolumeFailed, moorv1alpha1.PodVolumeDeletionFailed,
	}, v.Status.Phase)
}

// onVolumes is what happens when PodVolumes change.
func (s *servers) onVolumes() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, one := before.(*moorv1alpha1.PodVolume)
			is, two := after.(*moorv1alpha1.PodVolume)
			if one && two && was.Status.Phase != is.Status.Phase && ends(is) {
				s.nudge(is)
			}
		},
		DeleteFunc: func(o any) {
			if gone, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = gone.Obj
			}
			if v, is := o.(*moorv1alpha1.PodVolume); is {
				s.nudge(v)
			}
		},
	}
}

// tap is an informer that others use too: what is registered through it can be removed again, and what
// it has can be told again. The index of claims is made once for all, before.
type tap struct {
	toolscache.SharedIndexInformer
	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandler
	handles  []toolscache.ResourceEventHandlerRegistration
	err      error
}

// AddEventHandlerWithResyncPeriod registers a handler.
func (t *tap) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, every time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	handle, err := t.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, every)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.err = errors.Join(t.err, err)
		return handle, err
	}
	t.handlers, t.handles = append(t.handlers, h), append(t.handles, handle)
	return handle, nil
}

// AddIndexers does nothing: the index is there.
func (*tap) AddIndexers(toolscache.Indexers) error { return nil }

func (t *tap) remove() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, handle := range t.handles {
		_ = t.RemoveEventHandler(handle) // an informer that has ended has none
	}
	t.handlers, t.handles = nil, nil
}

func (t *tap) again(objects ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.handlers {
		for _, o := range objects {
			h.OnUpdate(o, o)
		}
	}
}

func byUID(o any) ([]string, error) {
	claim, is := o.(*corev1.PersistentVolumeClaim)
	if !is {
		return nil, fmt.Errorf("%T is no claim", o)
	}
	return []string{string(claim.UID)}, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/kube"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/csi/deadmounts"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// connectBeat lets the host read its own DPUStorageNode, and returns what writes its
// heartbeats, also when it is asked to, and which mounts are dead.
func (o *options) connectBeat(dpu *dpuView, mounts *deadmounts.Watcher, asks <-chan struct{}) (*heartbeat.Heart, error) {
	config, err := o.api.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme(coordinationv1.AddToScheme, moorv1alpha1.AddHostToScheme)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	dpu.read = func(ctx context.Context) (*moorv1alpha1.DPUStorageNode, error) {
		node := &moorv1alpha1.DPUStorageNode{}
		if err := c.Get(ctx, client.ObjectKey{Name: o.node.id}, node); err != nil {
			return nil, fmt.Errorf("read DPUStorageNode %s: %w", o.node.id, err)
		}
		return node, nil
	}
	return heartbeat.Host(heartbeat.Options{
		Client: c, Live: c, Name: o.node.id, Namespace: o.namespace, Version: version.Built().Version, Period: o.node.beatEvery, Seen: dpu.observe,
		Changed: mounts.Changed(), Asks: asks,
	}, func(context.Context) (moorv1alpha1.HostState, error) {
		volumes := o.node.maxVolumes
		if volumes == 0 {
			var err error
			if volumes, err = dpu.limit.Count(); err != nil {
				return moorv1alpha1.HostState{}, err
			}
		}
		return moorv1alpha1.HostState{MaxVolumes: volumes, DeadMounts: mounts.Dead()}, nil
	}), nil
}

// How old what a host knows of its DPU may be when it is asked, and how long it takes at
// most to read that anew.
const (
	viewAge     = 10 * time.Second
	viewTimeout = 2 * time.Second
)

// dpuView is what a host knows of its DPU: what it reads when it is asked, and what it
// learns when it writes the DPUStorageNode.
type dpuView struct {
	limit *nodecsi.Limit
	// read reads this host's DPUStorageNode; nil on hosts without credentials.
	read  func(context.Context) (*moorv1alpha1.DPUStorageNode, error)
	clock clock.PassiveClock
	// mu has one read it for all that ask at once; at is when it was read last.
	mu    sync.Mutex
	at    time.Time
	ready atomic.Pointer[metav1.Condition]
	// place is where the DPU was when that was first known: the kubelet labels its
	// node only when a driver registers, and asks for the keys again later.
	place atomic.Pointer[provisioner.Place]
	// placed is closed once the place is known.
	placed chan struct{}
}

func newDPUView(limit *nodecsi.Limit) *dpuView {
	return &dpuView{limit: limit, clock: clock.RealClock{}, placed: make(chan struct{})}
}

// refresh reads what is too old. If that fails, what was known stays.
func (v *dpuView) refresh(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.read == nil || !v.at.IsZero() && v.clock.Since(v.at) < viewAge {
		return
	}
	v.at = v.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	node, err := v.read(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "what is known of this host's DPU may be old")
		return
	}
	v.observe(node)
}

// observe records the DPUStorageNode as the API server has it.
func (v *dpuView) observe(node *moorv1alpha1.DPUStorageNode) {
	v.ready.Store(meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionReady))
	if place := node.Status.Topology; len(place) > 0 && v.place.CompareAndSwap(nil, &place) {
		close(v.placed)
	}
	if node.Status.DPU == nil {
		return
	}
	for _, c := range node.Status.DPU.Functions {
		v.limit.Seen(c.Type, c.Total)
	}
}

// functions is how many volumes the host takes.
func (v *dpuView) functions(ctx context.Context) (int64, error) {
	v.refresh(ctx)
	return v.limit.Count()
}

// awaitPlace returns when it is known where the DPU is; false if ctx ended first.
func (v *dpuView) awaitPlace(ctx context.Context) bool {
	ticker := time.NewTicker(viewAge)
	defer ticker.Stop()
	for {
		v.refresh(ctx)
		select {
		case <-v.placed:
			return true
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// storage says whether the storage can be reached from this host: through its
// DPU, as snap-host-controller judges that.
func (v *dpuView) storage(ctx context.Context) error {
	v.refresh(ctx)
	switch c := v.ready.Load(); {
	case c == nil:
		return errors.New("nothing is known of this host's DPU yet: does snap-host-controller run, and are heartbeats written?")
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("the DPU of this host does not serve: %s", c.Message)
	}
	return nil
}

// topology is where the DPU of this host is.
func (v *dpuView) topology() (provisioner.Place, error) {
	place := v.place.Load()
	if place == nil {
		return nil, fmt.Errorf("%w: status.topology of this host's DPUStorageNode is empty: does it name its DPU, does snap-host-controller run, and are heartbeats written?",
			provisioner.ErrUnavailable)
	}
	return *place, nil
}

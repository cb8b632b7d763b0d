package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/kube"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// beat writes this host's half of its DPUStorageNode until ctx ends.
func (o *options) beat(ctx context.Context, dpu *dpuView) error {
	config, err := o.api.Config(o.kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := kube.NewScheme(moorv1alpha1.AddHostToScheme)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the host cluster: %w", err)
	}
	heart := heartbeat.Host(heartbeat.Options{
		Client: c, Live: c, Name: o.node.id, Version: version.Built().Version, Period: o.node.beatEvery, Seen: dpu.observe,
	}, func(context.Context) (moorv1alpha1.HostState, error) {
		volumes := o.node.maxVolumes
		if volumes == 0 {
			var err error
			if volumes, err = dpu.limit.Count(); err != nil {
				return moorv1alpha1.HostState{}, err
			}
		}
		return moorv1alpha1.HostState{MaxVolumes: volumes}, nil
	})
	return heart.Start(ctx)
}

// dpuView is what a host learns of its DPU with each heartbeat.
type dpuView struct {
	limit *nodecsi.Limit
	ready atomic.Pointer[metav1.Condition]
	// place is where the DPU was when that was first known: the kubelet labels its
	// node only when a driver registers, and asks for the keys again later.
	place atomic.Pointer[provisioner.Place]
	// placed is closed once the place is known.
	placed chan struct{}
}

func newDPUView(limit *nodecsi.Limit) *dpuView {
	return &dpuView{limit: limit, placed: make(chan struct{})}
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

// storage says whether the storage can be reached from this host: through its
// DPU, as snap-host-controller judges that. It is as old as the last heartbeat.
func (v *dpuView) storage(context.Context) error {
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

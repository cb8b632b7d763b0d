package main

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/version"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
)

// beat writes this host's half of its DPUStorageNode until ctx ends.
func (o *options) beat(ctx context.Context, limit *nodecsi.Limit) error {
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
		Client: c, Live: c, Name: o.node.id, Version: version.Version, Period: o.node.beatEvery, Seen: functionsOf(limit),
	}, func(context.Context) (moorv1alpha1.HostState, error) {
		max := o.node.maxVolumes
		if max == 0 {
			var err error
			if max, err = limit.Count(); err != nil {
				return moorv1alpha1.HostState{}, err
			}
		}
		return moorv1alpha1.HostState{MaxVolumes: max}, nil
	})
	return heart.Start(ctx)
}

// functionsOf tells limit which functions the DPU says it has.
func functionsOf(limit *nodecsi.Limit) func(*moorv1alpha1.DPUStorageNode) {
	return func(node *moorv1alpha1.DPUStorageNode) {
		if node.Status.DPU == nil {
			return
		}
		for _, c := range node.Status.DPU.Functions {
			limit.Seen(c.Type, c.Total)
		}
	}
}

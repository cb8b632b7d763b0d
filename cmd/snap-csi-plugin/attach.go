package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
)

// nodeAttachments is how this host asks for volumes by itself. It watches its
// own attachments alone, so that the cost of a change does not grow with the
// number of hosts; volumes and its DPUStorageNode it reads when it needs them.
func (o *options) nodeAttachments(ctx context.Context, cancel context.CancelCauseFunc, informers *kube.Informers) (*attachment.Attachments, error) {
	config, err := o.api.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme(storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)
	if err != nil {
		return nil, err
	}
	own, err := informers.New(config, cache.Options{
		Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields(), DefaultNamespaces: map[string]cache.Config{o.namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&storagev1alpha1.DPUVolumeAttachment{}: {Field: fields.OneTermEqualSelector("spec.dpuNodeName", o.node.id)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	attachments, err := attachment.ForNode(ctx, dpf.Options{Client: live, Cache: own, Live: live, Namespace: o.namespace})
	if err != nil {
		return nil, err
	}
	go func() { cancel(own.Start(ctx)) }() // the first wait waits for it
	return attachments, nil
}

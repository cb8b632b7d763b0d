// Package health tells what is wrong with volumes, by what their objects, those
// of their attachments and of the nodes that have them say. It asks no vendor,
// and changes nothing.
package health

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/volume"
)

// Health tells what is wrong with volumes, by what their objects, those of
// their attachments and of the nodes that have them say. It asks no vendor.
type Health struct {
	options request.Options
	clock   clock.PassiveClock
	order   *volume.Order
}

var _ provisioner.Health = (*Health)(nil)

// New reads the objects; what takes its time is late by the clock.
func New(o request.Options, c clock.PassiveClock) *Health {
	return &Health{options: o, clock: c, order: volume.NewOrder(o)}
}

// Get returns what is wrong with one volume; ErrNotFound for one that is not
// there, or not yet.
func (h *Health) Get(ctx context.Context, id string) (provisioner.VolumeHealth, error) {
	return h.look(ctx, id, nodes{})
}

// List returns a page of the volumes with which something is wrong. It looks from where
// the page begins until that is full, and on to the next volume with which something is.
func (h *Health) List(ctx context.Context, page provisioner.Page) ([]provisioner.VolumeHealth, string, error) {
	order, err := h.order.From(ctx, page)
	if err != nil {
		return nil, "", err
	}
	out, known := []provisioner.VolumeHealth{}, nodes{}
	for n, id := range order {
		got, err := h.look(ctx, id, known)
		switch {
		case errors.Is(err, provisioner.ErrNotFound): // it went since the listing began
		case err != nil:
			return nil, "", err
		case len(got.Problems) == 0:
		case page.Max > 0 && len(out) == page.Max:
			return out, order[n-1], nil // it begins the next page
		default:
			out = append(out, got)
		}
	}
	return out, "", nil
}

// look says what is wrong with one volume. What it reads is the cache's own.
func (h *Health) look(ctx context.Context, id string, known nodes) (provisioner.VolumeHealth, error) {
	v := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, h.options.Client, client.ObjectKey{Namespace: h.options.Namespace, Name: id}, v, client.UnsafeDisableDeepCopy)
	if err != nil {
		return provisioner.VolumeHealth{}, request.Refused("read volume "+id, err)
	}
	if !found || v.Status.Phase != storagev1alpha1.DPUVolumeBound {
		return provisioner.VolumeHealth{}, fmt.Errorf("volume %s: %w in namespace %s, or not made yet", id, provisioner.ErrNotFound, h.options.Namespace)
	}
	uses, err := h.uses(ctx, id, known)
	if err != nil {
		return provisioner.VolumeHealth{}, err
	}
	return provisioner.VolumeHealth{VolumeID: id, Problems: diagnose(v, uses, h.clock.Now())}, nil
}

// uses are the attachments through which nodes use a volume, ordered by node.
func (h *Health) uses(ctx context.Context, id string, known nodes) ([]use, error) {
	all, err := attachment.Users(ctx, h.options, id)
	if err != nil {
		return nil, err
	}
	out := make([]use, 0, len(all))
	for i := range all {
		node, err := h.node(ctx, all[i].Spec.DPUNodeName, known)
		if err != nil {
			return nil, err
		}
		out = append(out, use{&all[i], node})
	}
	slices.SortFunc(out, byNode)
	return out, nil
}

// nodes are those that were read for one answer, by name; nil is one that is not there.
type nodes map[string]*moorv1alpha1.DPUStorageNode

// node reads a node, once.
func (h *Health) node(ctx context.Context, name string, known nodes) (*moorv1alpha1.DPUStorageNode, error) {
	if node, done := known[name]; done {
		return node, nil
	}
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, h.options.Client, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, request.Refused("read node "+name, err)
	}
	if !found {
		node = nil
	}
	known[name] = node
	return node, nil
}

// Package health tells what is wrong with volumes, by what their objects, those
// of their attachments and of the nodes that have them say. It asks no vendor,
// and changes nothing.
package health

import (
	"context"
	"fmt"
	"maps"
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
}

var _ provisioner.Health = (*Health)(nil)

// New reads the objects; what takes its time is late by the clock.
func New(o request.Options, c clock.PassiveClock) *Health { return &Health{options: o, clock: c} }

// Get returns what is wrong with one volume; ErrNotFound for one that is not
// there, or not yet.
func (h *Health) Get(ctx context.Context, id string) (provisioner.VolumeHealth, error) {
	v := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, h.options.Client, client.ObjectKey{Namespace: h.options.Namespace, Name: id}, v)
	if err != nil {
		return provisioner.VolumeHealth{}, request.Refused("read volume "+id, err)
	}
	if !found || v.Status.Phase != storagev1alpha1.DPUVolumeBound {
		return provisioner.VolumeHealth{}, fmt.Errorf("volume %s: %w in namespace %s, or not made yet", id, provisioner.ErrNotFound, h.options.Namespace)
	}
	uses, err := h.uses(ctx, client.MatchingFields{attachment.IndexVolume: id})
	if err != nil {
		return provisioner.VolumeHealth{}, err
	}
	return provisioner.VolumeHealth{VolumeID: id, Problems: diagnose(v, uses[id], h.clock.Now())}, nil
}

// List returns a page of the volumes with which something is wrong.
func (h *Health) List(ctx context.Context, page provisioner.Page) ([]provisioner.VolumeHealth, string, error) {
	volumes, err := volume.Bound(ctx, h.options)
	if err != nil {
		return nil, "", err
	}
	uses, err := h.uses(ctx)
	if err != nil {
		return nil, "", err
	}
	wrong, now := map[string][]provisioner.Problem{}, h.clock.Now()
	for id, v := range volumes {
		if problems := diagnose(v, uses[id], now); len(problems) > 0 {
			wrong[id] = problems
		}
	}
	ids, next := page.Cut(slices.Sorted(maps.Keys(wrong)))
	out := make([]provisioner.VolumeHealth, 0, len(ids))
	for _, id := range ids {
		out = append(out, provisioner.VolumeHealth{VolumeID: id, Problems: wrong[id]})
	}
	return out, next, nil
}

// uses are the attachments through which nodes use each volume, or each of those
// selected, ordered by node.
func (h *Health) uses(ctx context.Context, of ...client.ListOption) (map[string][]use, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	of = append(of, client.InNamespace(h.options.Namespace), client.UnsafeDisableDeepCopy)
	if err := h.options.Client.List(ctx, &list, of...); err != nil {
		return nil, request.Refused("list the attachments", err)
	}
	out := map[string][]use{}
	known := map[string]*moorv1alpha1.DPUStorageNode{}
	for i := range list.Items {
		a := &list.Items[i]
		if !attachment.InUse(a) {
			continue
		}
		if err := h.know(ctx, a.Spec.DPUNodeName, known); err != nil {
			return nil, err
		}
		out[a.Spec.DPUVolumeName] = append(out[a.Spec.DPUVolumeName], use{a, known[a.Spec.DPUNodeName]})
	}
	for _, of := range out {
		slices.SortFunc(of, byNode)
	}
	return out, nil
}

// know adds the node to those known, once; nil if it is not there.
func (h *Health) know(ctx context.Context, name string, known map[string]*moorv1alpha1.DPUStorageNode) error {
	if _, done := known[name]; done {
		return nil
	}
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, h.options.Client, client.ObjectKey{Name: name}, node)
	if err != nil {
		return request.Refused("read node "+name, err)
	}
	if !found {
		node = nil
	}
	known[name] = node
	return nil
}

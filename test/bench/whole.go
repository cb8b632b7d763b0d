package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// whole waits until every host can be used and could be lost again.
func (b *bench) whole(ctx context.Context) error {
	var missing string
	err := kit.Until(ctx, "every host is whole", func(ctx context.Context) (bool, error) {
		missing = ""
		for _, name := range b.bed.Nodes() {
			if missing = b.lacks(ctx, name); missing != "" {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, missing)
	}
	return nil
}

// lacks says what a host still lacks; "" if it is whole.
func (b *bench) lacks(ctx context.Context, name string) string {
	node, csiNode, storage := &corev1.Node{}, &storagev1.CSINode{}, &moorv1alpha1.DPUStorageNode{}
	key := client.ObjectKey{Name: name}
	err := errors.Join(b.clients.Host.Get(ctx, key, node), b.clients.Host.Get(ctx, key, csiNode), b.clients.Host.Get(ctx, key, storage))
	switch {
	case err != nil:
		return err.Error()
	case !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}):
		return name + " is not Ready"
	case len(node.Spec.Taints) > 0 || node.Spec.Unschedulable:
		return fmt.Sprintf("%s has taints %v", name, node.Spec.Taints)
	case !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driverName }):
		return "the kubelet of " + name + " does not know the driver"
	case !meta.IsStatusConditionTrue(storage.Status.Conditions, moorv1alpha1.ConditionReady):
		return "DPUStorageNode " + name + " is not Ready"
	case len(storage.Status.LostPaths()) > 0:
		return "the DPU of " + name + " has lost its way to the storage of some volumes"
	case meta.IsStatusConditionTrue(storage.Status.Conditions, moorv1alpha1.ConditionFailover):
		return "the failover of " + name + " is not over"
	}
	return ""
}

// powerOn gives a host and its DPU power again, if they have none.
func (b *bench) powerOn(ctx context.Context, host string) error {
	return errors.Join(b.bed.PowerOn(ctx, dpuOf(host)), b.bed.PowerOn(ctx, host))
}

// recover brings the bed back to where a run can begin: everything has power,
// every controller runs, no workload is left.
func (b *bench) recover(ctx context.Context) error {
	var failed []error
	for _, host := range b.bed.Nodes() {
		failed = append(failed, b.powerOn(ctx, host))
	}
	for _, name := range controllers {
		if !b.bed.Running(name) {
			failed = append(failed, b.bed.Restart(ctx, name))
		}
	}
	failed = append(failed, b.uncordon(ctx))
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("bring the bed back after a failed run: %w", err)
	}
	return errors.Join(b.clear(ctx), b.whole(ctx))
}

func (b *bench) uncordon(ctx context.Context) error {
	var failed []error
	for _, name := range b.bed.Nodes() {
		failed = append(failed, kit.Cordon(ctx, b.clients.Host, name, false))
	}
	return errors.Join(failed...)
}

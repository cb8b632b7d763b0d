package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// lastLook bounds one read after the end of a wait.
const lastLook = 2 * time.Second

// isExhausted reports whether the DPU has no function left for the device, and
// waits for none: the caller should look for another node.
func isExhausted(o *storagev1alpha1.DPUVolumeAttachment) bool {
	c := request.False(o.Status.Conditions, storagev1alpha1.ConditionDPUAttached)
	return c != nil && c.Reason == storagev1alpha1.ReasonExhausted
}

// withdraw takes an exhausted request back, waits until nothing of it is left, and
// returns ErrExhausted. Left standing it would be granted later, and used by
// no pod. It takes back what was seen and nothing newer: a conflict means that
// the request has changed since, and may have been granted.
func (a *Attachments) withdraw(ctx context.Context, seen *storagev1alpha1.DPUVolumeAttachment) error {
	err := kube.DeleteExact(ctx, a.options.Client, seen)
	what := fmt.Sprintf("take attachment %s back, for which its DPU has no function left", seen.Name)
	if err != nil {
		return request.Refused(what, err)
	}
	if err := request.AwaitGone(ctx, a.awaiter, seen); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w, and the request was taken back: %s", provisioner.ErrExhausted, seen.Status.Message)
}

// orExhausted makes ErrExhausted of the end of a wait without result if the node's DPU
// has no function left. It is for requests that were there before this call, such
// as replicas, and are left standing: of them the DPU may have spoken long ago. A
// kubelet that is told so fails the pod.
func (a *Attachments) orExhausted(ctx context.Context, last *storagev1alpha1.DPUVolumeAttachment, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	node := &moorv1alpha1.DPUStorageNode{}
	found, readErr := kube.Find(ctx, a.options.Client, types.NamespacedName{Name: last.Spec.DPUNodeName}, node)
	if readErr != nil || !found || !noneLeft(node, last) {
		return err
	}
	kind := kindOf(last.Spec.FunctionTypeConfig)
	return fmt.Errorf("%w: the DPU of node %s has none of its %d %s functions left: detach a volume there first: %w",
		err, node.Name, counted(node, kind).Total, kind, provisioner.ErrExhausted)
}

// noneLeft reports whether an attachment waits for a function and there is none.
// A count that is not there is not 0.
func noneLeft(node *moorv1alpha1.DPUStorageNode, o *storagev1alpha1.DPUVolumeAttachment) bool {
	has := o.Status.DPU != nil && o.Status.DPU.PCIAddress != ""
	count := counted(node, kindOf(o.Spec.FunctionTypeConfig))
	return !has && o.DeletionTimestamp.IsZero() && count.Total > 0 && count.Free <= 0
}

// kindOf is the kind of function, as DPUs count them.
func kindOf(f storagev1alpha1.FunctionTypeConfig) string {
	if f.HotplugFunction {
		return moorv1alpha1.FunctionHotplug
	}
	return string(f.FunctionType)
}

// counted is what the node's DPU says of a kind of function.
func counted(node *moorv1alpha1.DPUStorageNode, kind string) moorv1alpha1.FunctionCount {
	if node.Status.DPU != nil {
		for _, c := range node.Status.DPU.Functions {
			if c.Type == kind {
				return c
			}
		}
	}
	return moorv1alpha1.FunctionCount{}
}

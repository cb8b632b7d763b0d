package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// MostTimes keeps what is added to a Node of 12 KB below the 256 KiB that the
// annotations of an object may have together.
const MostTimes = 20

// padding is the annotation that makes objects large: nothing reads it, as nothing of
// Moor's reads what GitOps tools and kubectl keep in theirs.
const padding = "scale.example.com/padding"

// enlarged are the kinds of which there are some for each host, by cluster.
var enlarged = struct{ host, dpu []schema.GroupVersionKind }{
	host: slices.Concat(kubernetes, []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		moorv1alpha1.GroupVersion.WithKind("DPUStorageNode"),
		storagev1alpha1.GroupVersion.WithKind("DPUVolume"), storagev1alpha1.GroupVersion.WithKind("DPUVolumeAttachment"),
	}),
	dpu: slices.Concat(kubernetes, []schema.GroupVersionKind{
		storagev1alpha1.GroupVersion.WithKind("Volume"), storagev1alpha1.GroupVersion.WithKind("VolumeAttachment"),
		storagev1alpha1.GroupVersion.WithKind("SVVolumeAttachment"), moorv1alpha1.GroupVersion.WithKind("WriterClaim"),
	}),
}

// kubernetes are those of both clusters.
var kubernetes = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Node"), storagev1.SchemeGroupVersion.WithKind("CSINode"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("PersistentVolume"),
}

// Enlarge makes each object of host number 0 so many times as large as it is, by an
// annotation. It has to come before Copy.
func (c *Clusters) Enlarge(ctx context.Context, times int) error {
	for _, kind := range enlarged.host {
		if err := enlarge(ctx, c.Unlimited.Host, kind, times); err != nil {
			return fmt.Errorf("host cluster: %w", err)
		}
	}
	for _, kind := range enlarged.dpu {
		if err := enlarge(ctx, c.Unlimited.DPU, kind, times); err != nil {
			return fmt.Errorf("DPU cluster: %w", err)
		}
	}
	return nil
}

func enlarge(ctx context.Context, c client.Client, kind schema.GroupVersionKind, times int) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list each %s: %w", kind.Kind, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("enlarge each %s: there is none", kind.Kind)
	}
	for i := range list.Items {
		o := &list.Items[i]
		was := o.DeepCopy()
		if err := pad(o, times); err != nil {
			return err
		}
		if err := c.Patch(ctx, o, client.MergeFrom(was)); err != nil {
			return fmt.Errorf("enlarge %s %s: %w", kind.Kind, o.GetName(), err)
		}
	}
	return nil
}

// pad makes an object so many times as large as it is.
func pad(o *unstructured.Unstructured, times int) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("measure %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[padding] = strings.Repeat("x", (times-1)*len(raw))
	o.SetAnnotations(annotations)
	return nil
}

package vendor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// warnings say what works and is seldom meant. class is nil if there is none.
func (r *Reconciler) warnings(ctx context.Context, vendor *storagev1alpha1.DPUStorageVendor, class *storagev1.StorageClass) ([]string, error) {
	var out []string
	if class != nil && ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete) == corev1.PersistentVolumeReclaimRetain {
		out = append(out, fmt.Sprintf("StorageClass %s in DPU cluster %s has reclaimPolicy Retain, DPF wants Delete: of a volume that a user deletes, the vendor keeps the data and the PersistentVolume, until an administrator removes both",
			class.Name, r.Clusters.DPUClusterName))
	}
	var all storagev1alpha1.DPUStorageVendorList
	if err := r.Clusters.Host.Client.List(ctx, &all, client.InNamespace(vendor.Namespace)); err != nil {
		return nil, fmt.Errorf("list the vendors beside %s: %w", vendor.Name, err)
	}
	slices.SortFunc(all.Items, func(a, b storagev1alpha1.DPUStorageVendor) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name == vendor.Name {
			continue
		}
		if other.Spec.StorageClassName == vendor.Spec.StorageClassName {
			out = append(out, fmt.Sprintf("DPUStorageVendor %s names StorageClass %s too: the two are one storage, also to a policy that names both", other.Name, other.Spec.StorageClassName))
		}
		if other.Spec.PluginName == vendor.Spec.PluginName {
			out = append(out, fmt.Sprintf("DPUStorageVendor %s names plugin %s too: while that does not answer on a DPU, neither vendor's volumes are attached there", other.Name, other.Spec.PluginName))
		}
	}
	return out, nil
}

// others wakes the other vendors of the namespace, which may share something with this one.
func (r *Reconciler) others(ctx context.Context, o client.Object) []reconcile.Request {
	all := kube.RequestsOf(ctx, r.Clusters.Host.Client, &storagev1alpha1.DPUStorageVendorList{}, client.InNamespace(o.GetNamespace()))
	return slices.DeleteFunc(all, func(q reconcile.Request) bool { return q.Name == o.GetName() })
}

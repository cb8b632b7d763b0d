// Package dpucluster holds what the controllers of the DPU cluster share. The
// controllers are its subpackages: policy, volume, attachment and snapshot; they
// meet only in the objects.
package dpucluster

import (
	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// NewScheme knows the kinds that these controllers read and write.
func NewScheme() (*runtime.Scheme, error) {
	return kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme, snapshotv1.AddToScheme, groupsnapshotv1beta2.AddToScheme)
}

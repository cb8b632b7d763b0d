package kubetest

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
)

// NewPods makes an empty cluster for pods as volumes, with the indexes of pod-provisioner
// (controller). Its cache keeps all of each object: templates see them.
func NewPods(t *testing.T) *Cluster {
	t.Helper()
	s := scheme(t, moorv1alpha1.AddPodsToScheme, moorv1alpha1.AddDPUToScheme, pavv1alpha1.AddToScheme, storagev1alpha1.AddDPUToScheme)
	return newCluster(t, newControl(), index.Pods(), fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(
		&moorv1alpha1.PodVolume{}, &moorv1alpha1.PodStaging{}, &moorv1alpha1.PodRevocation{}, &pavv1alpha1.PavProvisioner{},
		&storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.SVVolumeAttachment{}, &moorv1alpha1.WriterClaim{}), nil)
}

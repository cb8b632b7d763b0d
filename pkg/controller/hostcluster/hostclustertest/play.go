// Package hostclustertest plays the processes of the DPU cluster, for the tests of
// hostcluster. Tests only.
package hostclustertest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Clusters are the two clusters in memory, as the reconcilers of hostcluster get them.
func Clusters(c *kubetest.Clusters) hostcluster.Clusters {
	return hostcluster.Clusters{
		Host: c.Host.Cluster, DPU: c.DPU.Cluster, DPUClusterName: kubetest.DPUClusterName,
		Namespace: kubetest.HostNamespace, TargetNamespace: kubetest.DPUNamespace,
	}
}

// The functions below are what the DPU cluster's processes do with one object,
// as one step that is right to repeat. Each changes its argument and says
// nothing; the caller writes the difference. A test on the fake clients and
// one on real API servers play the same.

// PlayPolicy is snap-controller: it finds every policy valid.
func PlayPolicy(p *storagev1alpha1.StoragePolicy) {
	p.Status.State = storagev1alpha1.StoragePolicyValid
}

// PlayVolume is snap-controller: it makes the volume of the vendor "vendor"
// with 2 GiB, and removes it.
func PlayVolume(v *storagev1alpha1.Volume) {
	if !v.DeletionTimestamp.IsZero() {
		drop(v, storagev1alpha1.FinalizerVolume)
		return
	}
	keep(v, storagev1alpha1.FinalizerVolume)
	size := resource.MustParse("2Gi")
	v.Spec.Volume = storagev1alpha1.VolumeSource{
		Capacity: &size, StorageVendorName: "vendor", StorageVendorPluginName: "vendor-plugin",
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}
	v.Status.State = storagev1alpha1.VolumeAvailable
}

// PlayAttachment is snap-controller and, for a single-writer volume by its
// claim (nil: none), snap-node-driver.
func PlayAttachment(a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) {
	if !a.DeletionTimestamp.IsZero() {
		switch {
		case a.Status.DPU.Attached: // withdraw first
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{}
		case slices.Contains(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment):
			drop(a, storagev1alpha1.FinalizerDPUAttachment)
		default:
			drop(a, storagev1alpha1.FinalizerVolumeAttachment)
		}
		return
	}
	keep(a, storagev1alpha1.FinalizerVolumeAttachment)
	a.Status.StorageAttached = true
	if !mayShow(a, claim) {
		return
	}
	if !slices.Contains(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment) {
		keep(a, storagev1alpha1.FinalizerDPUAttachment) // before the first effect
		return
	}
	a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, PCIDeviceAddress: "3b:00.2", DeviceName: "bdev", Epoch: a.Spec.Epoch,
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: "uuid"},
	}
}

// mayShow is the rule of the node driver.
func mayShow(a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	if !slices.Contains(a.Finalizers, storagev1alpha1.FinalizerWriterClaim) {
		return true
	}
	return claim != nil && claim.Status != nil && claim.Status.Phase == moorv1alpha1.ClaimGranted &&
		claim.Status.Holder == a.Spec.NodeName && claim.Status.Attachment == a.Name && claim.Status.AttachmentUID == a.UID &&
		claim.Status.Epoch == a.Spec.Epoch && a.Spec.Epoch != 0
}

func keep(o client.Object, finalizer string) {
	if !slices.Contains(o.GetFinalizers(), finalizer) {
		o.SetFinalizers(append(o.GetFinalizers(), finalizer))
	}
}

func drop(o client.Object, finalizer string) {
	o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == finalizer }))
}

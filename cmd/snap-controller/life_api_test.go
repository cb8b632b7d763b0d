//go:build api

package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// One whole life, with the rights of the manifest: the test is the vendor, the
// attacher, the DPU, and the controllers of Kubernetes.
func TestLife(t *testing.T) {
	s := startServer(t)
	s.start()
	policyBecomesValid(s)
	revisions := countRevisions(s, &storagev1alpha1.VolumeList{})
	s.create(kubetest.Volume("v", "gold"))
	v := volumeBecomesAvailable(s)
	if n := revisions(v); n > 4 {
		t.Errorf("the Volume was written %d times after its creation", n-1)
	}
	revisions = countRevisions(s, &storagev1alpha1.VolumeAttachmentList{})
	s.create(wantedAttachment())
	x := attachmentBecomesAttached(s)
	if n := revisions(x); n > 4 {
		t.Errorf("the VolumeAttachment was written %d times after its creation", n-1)
	}
	s.delete(v)
	until(s, "the volume waits for its attachment", v, "v", func(bool) bool {
		return v.Status.Message == "to be deleted once it is attached nowhere: waiting for VolumeAttachment x"
	})
	attachmentGoes(s, x)
	volumeGoes(s, v)
}

// Whatever comes late wakes what waits for it: the policy its volumes, the
// driver its attachments.
func TestLatecomersWakeWhatWaits(t *testing.T) {
	s := startServer(t)
	s.startProcess()
	s.create(kubetest.Volume("v", "gold"))
	v, x := &storagev1alpha1.Volume{}, &storagev1alpha1.VolumeAttachment{}
	until(s, "volume waits", v, "v", func(bool) bool {
		return v.Status.Message == "waiting for StoragePolicy gold, which does not exist"
	})
	s.create(wantedAttachment())
	until(s, "attachment waits for the volume", x, "x", func(bool) bool {
		return x.Status.StorageMessage == "waiting for Volume v to become Available: waiting for StoragePolicy gold, which does not exist"
	})
	s.create(kubetest.StoragePolicy("gold", "a"))
	s.create(kubetest.StorageClass("a"))
	until(s, "volume waits for the vendor", v, "v", func(bool) bool {
		return v.Status.Message == "waiting for StoragePolicy gold to become valid: StorageVendor a does not exist"
	})
	s.create(kubetest.StorageVendor("a"))
	s.bindClaim("v")
	until(s, "attachment waits for the driver", x, "x", func(bool) bool {
		return strings.HasPrefix(x.Status.StorageMessage, "waiting for CSIDriver a.csi")
	})
	s.create(kubetest.CSIDriver("a", ptr.To(false)))
	until(s, "attached", x, "x", func(bool) bool { return x.Status.StorageAttached && x.Status.StorageMessage == "" })
	s.delete(x)
	until(s, "attachment gone", x, "x", func(exists bool) bool { return !exists })
}

func policyBecomesValid(s *server) {
	s.t.Helper()
	policy := kubetest.StoragePolicy("gold", "a")
	policy.Status = storagev1alpha1.StoragePolicyStatus{}
	s.create(policy)
	until(s, "policy invalid", policy, "gold", func(bool) bool { return policy.Status.State == storagev1alpha1.StoragePolicyInvalid })
	s.create(kubetest.StorageVendor("a"))
	s.create(kubetest.StorageClass("a"))
	s.create(kubetest.CSIDriver("a", nil))
	until(s, "policy valid", policy, "gold", func(bool) bool { return policy.Status.State == storagev1alpha1.StoragePolicyValid })
	// The vendor's csi-provisioner tells of the room, in whatever namespace it runs.
	s.create(&storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "room", Namespace: metav1.NamespaceDefault}, StorageClassName: "a-class", Capacity: ptr.To(resource.MustParse("7Gi")),
	})
	until(s, "room told", policy, "gold", func(bool) bool {
		return policy.Status.Capacity != nil && policy.Status.Capacity.Available.Cmp(resource.MustParse("7Gi")) == 0
	})
}

func volumeBecomesAvailable(s *server) *storagev1alpha1.Volume {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	until(s, "claim made", claim, "v-pvc", func(exists bool) bool { return exists })
	pv := kubetest.VendorPV("pv", "v-pvc", "a.csi", corev1.PersistentVolumeReclaimDelete)
	pv.Spec.ClaimRef.UID = claim.UID
	s.create(pv)
	change(s, pv, nil, func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound })
	change(s, claim, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" },
		func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	v := &storagev1alpha1.Volume{}
	until(s, "volume available", v, "v", func(bool) bool { return v.Status.State == storagev1alpha1.VolumeAvailable })
	if made := v.Spec.Volume; made.ID != string(v.UID) || made.VolumeAttributes["array"] != "7" || v.Labels["volumeId"] != made.ID {
		s.t.Errorf("%+v", v)
	}
	return v
}

// wantedAttachment is what the host side makes: with a writer claim to come.
func wantedAttachment() *storagev1alpha1.VolumeAttachment {
	x := kubetest.VolumeAttachment("x", "v", "d1")
	x.Spec.FunctionType = storagev1alpha1.FunctionTypePF
	return x
}

func attachmentBecomesAttached(s *server) *storagev1alpha1.VolumeAttachment {
	s.t.Helper()
	sv, x := &storagev1alpha1.SVVolumeAttachment{}, &storagev1alpha1.VolumeAttachment{}
	until(s, "vendor asked", sv, "x", func(exists bool) bool { return exists })
	if sv.Spec.NodeName != "d1" || ptr.Deref(sv.Spec.Source.PersistentVolumeName, "") != "pv" {
		s.t.Errorf("%+v", sv.Spec)
	}
	change(s, sv, func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = []string{"external-attacher/a-csi"} },
		func(sv *storagev1alpha1.SVVolumeAttachment) {
			sv.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "7"}}
		})
	until(s, "attached", x, "x", func(bool) bool { return x.Status.StorageAttached })
	if x.Spec.Parameters["lun"] != "7" || x.Spec.Parameters["tier"] != "gold" || x.Status.StorageMessage != "" {
		s.t.Errorf("%+v %+v", x.Spec, x.Status)
	}
	return x
}

func attachmentGoes(s *server, x *storagev1alpha1.VolumeAttachment) {
	s.t.Helper()
	change(s, x, func(x *storagev1alpha1.VolumeAttachment) {
		x.Finalizers = append(x.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	}, nil)
	s.delete(x)
	until(s, "attachment waits for the DPU", x, "x", func(bool) bool { return x.Status.StorageMessage == "waiting for DPU d1 to withdraw the volume" })
	sv := &storagev1alpha1.SVVolumeAttachment{}
	until(s, "vendor not yet asked to detach", sv, "x", func(exists bool) bool { return exists && sv.DeletionTimestamp == nil })
	change(s, x, func(x *storagev1alpha1.VolumeAttachment) {
		x.Finalizers = slices.DeleteFunc(x.Finalizers, func(f string) bool { return f == storagev1alpha1.FinalizerDPUAttachment })
	}, nil)
	until(s, "vendor asked to detach", sv, "x", func(exists bool) bool { return exists && sv.DeletionTimestamp != nil })
	until(s, "attachment still there", x, "x", func(exists bool) bool { return exists })
	change(s, sv, func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = nil }, nil)
	until(s, "attachment gone", x, "x", func(exists bool) bool { return !exists })
}

func volumeGoes(s *server, v *storagev1alpha1.Volume) {
	s.t.Helper()
	claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	until(s, "claim deleted", claim, "v-pvc", func(exists bool) bool { return exists && claim.DeletionTimestamp != nil })
	change(s, claim, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil }, nil)
	until(s, "volume waits for the vendor", v, "v", func(bool) bool { return v.Status.Message == "waiting for the vendor to delete PersistentVolume pv" })
	s.delete(pv)
	until(s, "pv there", pv, "pv", func(exists bool) bool { return exists })
	change(s, pv, func(pv *corev1.PersistentVolume) { pv.Finalizers = nil }, nil)
	until(s, "volume gone", v, "v", func(exists bool) bool { return !exists })
}

// countRevisions watches a kind from now on; the function it returns counts
// the versions that there have been, once it has seen the one given.
func countRevisions(s *server, list client.ObjectList) func(last client.Object) int {
	s.t.Helper()
	w, err := s.Watch(context.Background(), list, client.InNamespace(kubetest.DPUNamespace))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Stop)
	return func(last client.Object) int {
		s.t.Helper()
		seen := map[string]bool{}
		for e := range w.ResultChan() {
			obj, ok := e.Object.(client.Object)
			if !ok {
				s.t.Fatalf("watch: %+v", e.Object)
			}
			seen[obj.GetResourceVersion()] = true
			if obj.GetResourceVersion() == last.GetResourceVersion() {
				return len(seen)
			}
		}
		s.t.Fatal("the watch ended early")
		return 0
	}
}

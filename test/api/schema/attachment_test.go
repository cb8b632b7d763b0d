//go:build api

package schema

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// TestVolumeAttachmentHistory: what a late writer may not take back, and what DPF's
// own objects and Moor's controllers change.
func TestVolumeAttachmentHistory(t *testing.T) {
	const (
		epoch  = "epoch never goes back"
		fence  = "fenceEpoch never goes back"
		node   = "nodeName is immutable once it is set"
		volume = "source.volumeRef.name is immutable once it is set"
	)
	for _, row := range []struct {
		name          string
		before, after changes
		want          string
	}{
		{"granted", nil, changes{"spec.epoch": 1}, ""},
		{"granted again", changes{"spec.epoch": 1}, changes{"spec.epoch": 2}, ""},
		{"the same again", changes{"spec.epoch": 2}, changes{"spec.epoch": 2}, ""},
		{"a late grant", changes{"spec.epoch": 3}, changes{"spec.epoch": 2}, epoch},
		{"epoch is taken back to 0", changes{"spec.epoch": 3}, changes{"spec.epoch": 0}, epoch},
		{"epoch is removed", changes{"spec.epoch": 3}, changes{"spec.epoch": nil}, epoch},
		{"being taken", changes{"spec.epoch": 3}, changes{"spec.fenceEpoch": 4}, ""},
		{"an earlier fence", changes{"spec.fenceEpoch": 4}, changes{"spec.fenceEpoch": 3}, fence},
		{"the fence is removed", changes{"spec.fenceEpoch": 4}, changes{"spec.fenceEpoch": nil}, fence},
		{"none is removed", changes{"spec.epoch": 0}, changes{"spec.epoch": nil}, ""},
		{"promoted", changes{"spec.role": "Replica"}, changes{"spec.role": "Primary", "spec.epoch": 1}, ""},
		{"another DPU", nil, changes{"spec.nodeName": "node-2"}, node},
		{"no DPU any more", nil, changes{"spec.nodeName": nil}, node},
		{"a DPU at last", changes{"spec.nodeName": nil}, changes{"spec.nodeName": "node-1"}, ""},
		{"a DPU for an empty name", changes{"spec.nodeName": ""}, changes{"spec.nodeName": "node-1"}, ""},
		{"another volume", nil, changes{"spec.source.volumeRef.name": "w"}, volume},
		{"no volume any more", nil, changes{"spec.source.volumeRef": nil}, volume},
		{"no source any more", nil, changes{"spec.source": nil}, volume},
		{"a volume at last", changes{"spec.source": nil}, changes{"spec.source": yamlText("{volumeRef: {name: v}}")}, ""},
		{"the reference is completed", nil, changes{"spec.source.volumeRef": yamlText("{name: v, kind: Volume, apiVersion: storage.dpu.nvidia.com/v1alpha1, namespace: ns}")}, ""},
		{"attached by the vendor", nil, changes{"spec.volumeAttachmentRef": yamlText("{name: a}"), "spec.parameters": yamlText("{lun: '7'}"), "spec.capacity": "1Gi"}, ""},
		{"another function", nil, changes{"spec.functionType": "pf", "spec.hotplugFunction": true}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := object(t, "VolumeAttachment")
			for path, value := range row.before {
				set(t, o, path, value)
			}
			mustCreate(t, o)
			for path, value := range row.after {
				set(t, o, path, value)
			}
			check(t, clusters.DPU.Update(t.Context(), o), row.want)
		})
	}
}

// TestEpochsThatAreOverStay: an epoch that is over on a DPU, or at the storage, stays
// over there.
func TestEpochsThatAreOverStay(t *testing.T) {
	const (
		back  = "status.dpu.retiredEpoch never goes back"
		kept  = "status.dpu.clearedEpoch never goes back"
		fence = "status.fence never goes back"
	)
	for _, row := range []struct {
		name         string
		before, last any
		want         string
	}{
		{"retired", yamlText("{dpu: {attached: true, epoch: 1}}"), yamlText("{dpu: {retiredEpoch: 1}}"), ""},
		{"a later one", yamlText("{dpu: {retiredEpoch: 1}}"), yamlText("{dpu: {retiredEpoch: 2}}"), ""},
		{"shown again", yamlText("{dpu: {retiredEpoch: 1}}"), yamlText("{dpu: {retiredEpoch: 1, attached: true, epoch: 2}}"), ""},
		{"an earlier one", yamlText("{dpu: {retiredEpoch: 2}}"), yamlText("{dpu: {retiredEpoch: 1}}"), back},
		{"none", yamlText("{dpu: {retiredEpoch: 2}}"), yamlText("{dpu: {attached: true}}"), back},
		{"no DPU", yamlText("{dpu: {retiredEpoch: 2}}"), yamlText("{storageAttached: true}"), back},
		{"no status", yamlText("{dpu: {retiredEpoch: 2}}"), nil, back},
		{"cleared up", yamlText("{dpu: {attached: true, epoch: 1}}"), yamlText("{dpu: {clearedEpoch: 1}}"), ""},
		{"cleared up less", yamlText("{dpu: {clearedEpoch: 2}}"), yamlText("{dpu: {clearedEpoch: 1}}"), kept},
		{"not cleared up", yamlText("{dpu: {clearedEpoch: 2}}"), yamlText("{storageAttached: true}"), kept},
		{"fenced", yamlText("{dpu: {attached: true}}"), yamlText("{dpu: {attached: true}, fence: {attachmentUID: u, epoch: 1, time: '2026-01-02T03:04:05Z'}}"), ""},
		{"fenced again", fenceText(1), fenceText(2), ""},
		{"an earlier fence", fenceText(2), fenceText(1), fence},
		{"no fence any more", fenceText(2), yamlText("{storageAttached: true}"), fence},
		{"no epoch", nil, fenceText(0), "should be greater than or equal to 1"},
		{"nothing was retired", yamlText("{storageAttached: true, dpu: {retiredEpoch: 0}}"), yamlText("{storageAttached: true}"), ""},
		{"of DPF's driver", yamlText("{storageAttached: true, dpu: {attached: true, deviceName: d}}"), yamlText("{dpu: {}}"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := object(t, "VolumeAttachment")
			mustCreate(t, o)
			set(t, o, "status", row.before)
			if err := clusters.DPU.Status().Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			set(t, o, "status", row.last)
			check(t, clusters.DPU.Status().Update(t.Context(), o), row.want)
		})
	}
}

// fenceText is a status in which the storage accepts nothing below an epoch.
func fenceText(epoch int) any {
	return yamlText(fmt.Sprintf("{storageAttached: true, fence: {attachmentUID: u, epoch: %d, time: '2026-01-02T03:04:05Z'}}", epoch))
}

// TestPatchOfAnotherObject: a merge patch is for the object that was read. The server
// compares the UID that the patch names; in one of the status it does not, and the
// write fails by the answer.
func TestPatchOfAnotherObject(t *testing.T) {
	o := object(t, "VolumeAttachment")
	mustCreate(t, o)
	key := client.ObjectKeyFromObject(o)
	read := func() *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{}
		if err := clusters.DPU.Get(t.Context(), key, a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	old := read()
	if _, err := kube.Patch(t.Context(), clusters.DPU, old.DeepCopy(), func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 1 }); err != nil {
		t.Fatalf("a patch of the object that was read, which has changed since: %v", err)
	}
	if err := clusters.DPU.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	anew := object(t, "VolumeAttachment")
	mustCreate(t, anew)
	for name, patch := range map[string]func(*storagev1alpha1.VolumeAttachment) (bool, error){
		"the object": func(a *storagev1alpha1.VolumeAttachment) (bool, error) {
			return kube.Patch(t.Context(), clusters.DPU, a, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 1 })
		},
		"the object as it was read": func(a *storagev1alpha1.VolumeAttachment) (bool, error) {
			return kube.PatchExact(t.Context(), clusters.DPU, a, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 1 })
		},
		"the status": func(a *storagev1alpha1.VolumeAttachment) (bool, error) {
			return kube.PatchStatus(t.Context(), clusters.DPU, a, func(a *storagev1alpha1.VolumeAttachment) { a.Status.Message = "late" })
		},
		"the status as it was read": func(a *storagev1alpha1.VolumeAttachment) (bool, error) {
			return kube.PatchStatusExact(t.Context(), clusters.DPU, a, func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageMessage = "late" })
		},
	} {
		if wrote, err := patch(old.DeepCopy()); wrote || !apierrors.IsConflict(err) {
			t.Errorf("%s: wrote %v, %v", name, wrote, err)
		}
	}
	if now := read(); now.UID != anew.GetUID() || now.Spec.Epoch != 0 || now.Status.StorageMessage != "" {
		t.Errorf("the new one is %+v", now)
	}
}

package attachment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPublish(t *testing.T) {
	nvme := &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", NVMeAttrs: &storagev1alpha1.NVMeAttrs{NamespaceID: 3}}
	ours := map[string]string{"nv-volumeName": "vol", "nv-volumeAttachmentName": "n-vol", "nv-pciDeviceAddress": "3b:00.2", "nv-nvmeNsID": "3"}
	with := func(m map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, tc := range []struct {
		name     string
		metadata map[string]string
		dpu      *storagev1alpha1.AttachedDPU
		want     map[string]string
		fault    string
	}{
		{"NVMe", nil, nvme, ours, ""},
		{"with the vendor's metadata", map[string]string{"lun": "7"}, nvme, with(ours, "lun", "7"), ""},
		{
			"with a VUID", nil, &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", FuncVUID: "MT1", NVMeAttrs: nvme.NVMeAttrs},
			with(ours, "nv-funcVUID", "MT1"), "",
		},
		{"name taken: VUID", map[string]string{"nv-funcVUID": "x"}, &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", FuncVUID: "MT1"}, nil, "nv-funcVUID"},
		{
			"file system", nil, &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", VirtioFSAttrs: &storagev1alpha1.VirtioFSAttrs{FilesystemTag: "tag"}},
			map[string]string{"nv-volumeName": "vol", "nv-volumeAttachmentName": "n-vol", "nv-pciDeviceAddress": "3b:00.2", "nv-virtioFsTag": "tag"},
			"",
		},
		{"no DPU", nil, nil, map[string]string{"nv-volumeName": "vol", "nv-volumeAttachmentName": "n-vol"}, ""},
		{"name taken: volume", map[string]string{"nv-volumeName": "x"}, nvme, nil, "nv-volumeName"},
		{"name taken: attachment", map[string]string{"nv-volumeAttachmentName": "x"}, nvme, nil, "nv-volumeAttachmentName"},
		{"name taken: address", map[string]string{"nv-pciDeviceAddress": "x"}, nvme, nil, "nv-pciDeviceAddress"},
		{"name taken: namespace", map[string]string{"nv-nvmeNsID": "3"}, nvme, nil, "nv-nvmeNsID"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &storagev1alpha1.DPUVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: "n-vol"}, Spec: storagev1alpha1.DPUVolumeAttachmentSpec{DPUVolumeName: "vol"},
				Status: storagev1alpha1.DPUVolumeAttachmentStatus{AttachmentMetadata: tc.metadata, DPU: tc.dpu},
			}
			before := o.DeepCopy()
			got, err := Publish(o)
			if tc.fault != "" {
				if err == nil || err.Error() != "attachment n-vol: the vendor's metadata uses the reserved name "+tc.fault {
					t.Errorf("got %v", err)
				}
			} else if diff := cmp.Diff(tc.want, got.PublishContext); err != nil || diff != "" {
				t.Errorf("%v; publish context (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(before, o); diff != "" {
				t.Errorf("the attachment, which is the cache's, was changed:\n%s", diff)
			}
		})
	}
}

// TestHolder: who has a single-node volume, as one of its attachments sees it.
func TestHolder(t *testing.T) {
	user := func(node string, isShown bool) storagev1alpha1.DPUVolumeAttachment {
		return storagev1alpha1.DPUVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: node + "-vol"},
			Spec:       storagev1alpha1.DPUVolumeAttachmentSpec{DPUNodeName: node},
			Status:     storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: &isShown},
		}
	}
	for _, tc := range []struct {
		name            string
		users           []storagev1alpha1.DPUVolumeAttachment
		asked, ownShown bool
		want            string
	}{
		{"no users", nil, false, false, ""},
		{"we alone", []storagev1alpha1.DPUVolumeAttachment{user("me", false)}, true, false, ""},
		{"another, not shown yet", []storagev1alpha1.DPUVolumeAttachment{user("b", false)}, false, false, "b"},
		{"another", []storagev1alpha1.DPUVolumeAttachment{user("b", true)}, false, false, "b"},
		{"both wait", []storagev1alpha1.DPUVolumeAttachment{user("b", false), user("me", false)}, true, false, ""},
		{"the other won", []storagev1alpha1.DPUVolumeAttachment{user("b", true), user("me", false)}, true, false, "b"},
		{"we won", []storagev1alpha1.DPUVolumeAttachment{user("b", false), user("me", true)}, true, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := holderOf(tc.users, "me-vol", tc.asked, tc.ownShown); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

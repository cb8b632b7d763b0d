package devices

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
)

// FuzzPublishContext: what the controller publishes of an attachment is what the
// node finds, and what a node accepts is a function on its own PCI bus.
func FuzzPublishContext(f *testing.F) {
	f.Add("3B:00.2", int64(1), "11111111-2222-4333-8444-555555555555", "", "lun", "7")
	f.Add("0000:3b:00.2", int64(0), "", "tag", "", "")
	f.Add("00:00.0", int64(-1), "x", "", storagev1alpha1.PublishContextPCIAddress, "../..")
	f.Add("", int64(1)<<40, "", "../tag", storagev1alpha1.PublishContextUUID, "")
	f.Fuzz(func(t *testing.T, address string, nsid int64, uuid, tag, key, value string) {
		o := &storagev1alpha1.DPUVolumeAttachment{}
		o.Name, o.Spec.DPUVolumeName = "n-v", "v"
		o.Status.AttachmentMetadata = map[string]string{key: value}
		o.Status.DPU = &storagev1alpha1.AttachedDPU{PCIAddress: address}
		if tag != "" {
			o.Status.DPU.VirtioFSAttrs = &storagev1alpha1.VirtioFSAttrs{FilesystemTag: tag}
		} else {
			o.Status.DPU.NVMeAttrs = &storagev1alpha1.NVMeAttrs{NamespaceID: nsid, NamespaceUUID: uuid}
		}
		a, err := attachment.Publish(o)
		if err != nil {
			if !strings.Contains(err.Error(), key) {
				t.Fatalf("refused without the name %q: %v", key, err)
			}
			return
		}
		if a.PublishContext[key] != value || len(o.Status.AttachmentMetadata) != 1 {
			t.Fatalf("the vendor's %q=%q became %v", key, value, a.PublishContext)
		}
		p, err := parseOpen(provisioner.OpenSpec{VolumeID: "v", PublishContext: a.PublishContext})
		if err != nil {
			if !errors.Is(err, provisioner.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if filepath.Base(p.Address) != p.Address || !strings.EqualFold(p.Address[len(p.Address)-7:], strings.TrimSpace(address)[len(strings.TrimSpace(address))-7:]) {
			t.Fatalf("%q became %q", address, p.Address)
		}
		if p.tag != tag || tag == "" && (p.NamespaceID != nsid || p.UUID != uuid && key != storagev1alpha1.PublishContextUUID || nsid < 1) {
			t.Fatalf("tag %q, namespace %d, UUID %q became %+v", tag, nsid, uuid, p)
		}
	})
}

package patrol

import (
	"testing"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestExposureDiffers(t *testing.T) {
	attachment := func(on bool) *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{}
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: on, DeviceName: "d", PCIDeviceAddress: "p", BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: "u"}}
		return a
	}
	deleting := attachment(true)
	deleting.DeletionTimestamp = &deleting.CreationTimestamp
	deleting.DeletionTimestamp.Time = time.Unix(1, 0)
	ready := attachment(false)
	ready.Status.DPU.PreEmulated = true
	good := provisioner.Exposure{Device: "d", PCIAddress: "p", NamespaceID: 1, UUID: "u", Visible: true}
	partial, moved, other := good, good, good
	partial.Visible, moved.PCIAddress, other.UUID = false, "q", "w"
	hidden := partial
	hidden.Hidden = true
	hiddenElsewhere := hidden
	hiddenElsewhere.PCIAddress = "q"
	otherNamespace, partialElsewhere := good, partial
	otherNamespace.NamespaceID, partialElsewhere.PCIAddress = 2, "q"
	unmade, bare := attachment(false), attachment(true)
	unmade.Status.DPU.DeviceName, bare.Status.DPU.BdevAttrs = "", nil
	shares := attachment(true)
	shares.Status.DPU.BdevAttrs, shares.Status.DPU.FsdevAttrs = nil, &storagev1alpha1.FsdevAttrs{FilesystemTag: "t"}
	tagged := provisioner.Exposure{Device: "d", PCIAddress: "p", Tag: "t", Visible: true}
	retagged, taggedElsewhere := tagged, tagged
	retagged.Tag, taggedElsewhere.PCIAddress = "other", "q"
	cases := map[string]struct {
		a               *storagev1alpha1.VolumeAttachment
		e               provisioner.Exposure
		found, complete bool
		want            bool
	}{
		"as it should be":                 {attachment(true), good, true, true, false},
		"gone":                            {attachment(true), provisioner.Exposure{}, false, true, true},
		"perhaps gone":                    {attachment(true), provisioner.Exposure{}, false, false, false},
		"partial":                         {attachment(true), partial, true, true, true},
		"moved":                           {attachment(true), moved, true, true, true},
		"other identity":                  {attachment(true), other, true, true, true},
		"shown, not said to be":           {attachment(false), good, true, true, true},
		"not shown, and not said to be":   {attachment(false), provisioner.Exposure{}, false, true, false},
		"being deleted":                   {deleting, provisioner.Exposure{}, false, true, false},
		"ready, as it should be":          {ready, hidden, true, true, false},
		"ready, but shown":                {ready, good, true, true, true},
		"ready, but gone":                 {ready, provisioner.Exposure{}, false, true, true},
		"ready, but perhaps gone":         {ready, provisioner.Exposure{}, false, false, false},
		"ready, but in part only":         {ready, partial, true, true, true},
		"ready elsewhere":                 {ready, hiddenElsewhere, true, true, true},
		"hidden, said to be shown":        {attachment(true), hidden, true, true, true},
		"hidden, not said to be":          {attachment(false), hidden, true, true, true},
		"partial, and not said to be any": {attachment(false), partial, true, true, false},
		"partial, elsewhere":              {attachment(false), partialElsewhere, true, true, false},
		"another namespace":               {attachment(true), otherNamespace, true, true, true},
		"nothing is made":                 {unmade, good, true, true, false},
		"being deleted, and moved":        {deleting, moved, true, true, false},
		"its identity is not on record":   {bare, good, true, true, true},
		"a file system":                   {shares, tagged, true, true, false},
		"a file system of another tag":    {shares, retagged, true, true, true},
		"a file system that moved":        {shares, taggedElsewhere, true, true, true},
	}
	for name, c := range cases {
		if got := exposureDiffers(c.a, c.e, c.found, c.complete); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := jitter(10 * time.Second); d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("jitter of 10s is %s", d)
		}
	}
}

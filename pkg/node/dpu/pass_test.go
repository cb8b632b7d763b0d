package dpu

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// passOf is a pass over an attachment of one writer with this on record.
func passOf(dpu storagev1alpha1.VolumeAttachmentDPU) *pass {
	a := &storagev1alpha1.VolumeAttachment{}
	a.UID, a.Spec.Epoch = "uid", 3
	a.Spec.Source.VolumeRef = &storagev1alpha1.ObjectRef{Name: "v1"}
	a.Status.DPU = dpu
	return newPass(a)
}

// TestPassKnows: what a pass takes from the record decides whether a device is shown under this epoch, is
// made ready only, and is withdrawn from the service on record.
func TestPassKnows(t *testing.T) {
	for name, tc := range map[string]struct {
		dpu     storagev1alpha1.VolumeAttachmentDPU
		replica bool
		refused string
		// what it knows
		shown, keepsReady, onRecord, behind bool
	}{
		"nothing":                      {},
		"shown":                        {dpu: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 3}, shown: true},
		"shown under an earlier epoch": {dpu: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 2}},
		"an epoch alone":               {dpu: storagev1alpha1.VolumeAttachmentDPU{Epoch: 3}},
		"a replica":                    {replica: true, refused: "a replica", keepsReady: true},
		"a replica that may be shown":  {replica: true},
		"a right that is refused":      {refused: "another has it"},
		"a service on record":          {dpu: storagev1alpha1.VolumeAttachmentDPU{Provider: "nvidia", Incarnation: "i"}, onRecord: true},
		"another service on record":    {dpu: storagev1alpha1.VolumeAttachmentDPU{Provider: "other", Incarnation: "i"}},
		"a service of no incarnation":  {dpu: storagev1alpha1.VolumeAttachmentDPU{Provider: "nvidia"}},
		"open under an earlier epoch":  {dpu: storagev1alpha1.VolumeAttachmentDPU{OpenEpoch: ptr.To(int64(2))}, behind: true},
		"open under this epoch":        {dpu: storagev1alpha1.VolumeAttachmentDPU{OpenEpoch: ptr.To(int64(3))}},
		"a replica that is not opened": {dpu: storagev1alpha1.VolumeAttachmentDPU{OpenEpoch: new(int64)}, replica: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := passOf(tc.dpu)
			if p.refused = tc.refused; tc.replica {
				p.attachment.Spec.Role = storagev1alpha1.RoleReplica
			}
			if p.shown() != tc.shown || p.keepsReady() != tc.keepsReady || p.onRecord("nvidia") != tc.onRecord || p.behind() != tc.behind {
				t.Errorf("shown %v, keeps ready %v, on record %v, behind %v", p.shown(), p.keepsReady(), p.onRecord("nvidia"), p.behind())
			}
		})
	}
}

// TestNamesNoVolume: an attachment that names no volume says so, and goes without a plugin.
func TestNamesNoVolume(t *testing.T) {
	c, m, _ := attached(t)
	a := c.attachment("none", "dpu-1")
	a.Spec.Source.VolumeRef = nil
	c.must(c.Update(t.Context(), a))
	if now := m.settle(a.Name); now.Status.Message != "the attachment names no volume" {
		t.Errorf("it says %q", now.Status.Message)
	}
}

// TestEndedAndKept: what the end of an exposure leaves behind is named, by the incarnation on record, and is
// never left out; and what a function may have kept is of the epoch on record, if its host had the device.
func TestEndedAndKept(t *testing.T) {
	attrs := &storagev1alpha1.BdevAttrs{}
	for name, tc := range map[string]struct {
		on        storagev1alpha1.VolumeAttachmentDPU
		undrained string
		now       string // the incarnation
		want      []string
		left      string
		kept      *int64
	}{
		"nothing":                        {},
		"it ended in order":              {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d", Provider: "p", Incarnation: "i"}, now: "i"},
		"it was not there to the end":    {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d", Provider: "p", Incarnation: "i"}, undrained: "i", now: "i", want: []string{"i"}},
		"another was there":              {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d", Provider: "p", Incarnation: "i"}, undrained: "i", now: "j", want: []string{"i"}, left: "i"},
		"by what is not known":           {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d"}, want: []string{unknown}},
		"by what is not known, and more": {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d"}, undrained: "i", want: []string{unknown}},
		"no device is on record":         {on: storagev1alpha1.VolumeAttachmentDPU{}, undrained: "i", want: []string{"i"}},
		"one before is not drained":      {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d", Provider: "p", Undrained: "h"}, want: []string{"h"}},
		"nor is the last":                {on: storagev1alpha1.VolumeAttachmentDPU{DeviceName: "d", Provider: "p", Incarnation: "i", Undrained: "h"}, undrained: "i", now: "i", want: []string{"i", "h"}},
		"it was shown":                   {on: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 2, Incarnation: "i", BdevAttrs: attrs}, now: "j", left: "i", kept: ptr.To(int64(2))},
		"it was ready":                   {on: storagev1alpha1.VolumeAttachmentDPU{PreEmulated: true, Incarnation: "i", BdevAttrs: attrs}, now: "j", left: "i", kept: new(int64)},
		"it was neither":                 {on: storagev1alpha1.VolumeAttachmentDPU{Epoch: 2, Incarnation: "i", BdevAttrs: attrs}, now: "j", left: "i"},
		"it is shown by the same":        {on: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 2, Incarnation: "i", BdevAttrs: attrs}, now: "i"},
		"by virtio-fs":                   {on: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 2, Incarnation: "i"}, now: "j", left: "i"},
		"none has a socket now":          {on: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 2, Incarnation: "i", BdevAttrs: attrs}, left: "i"},
		"none was on record":             {on: storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 2, BdevAttrs: attrs}, now: "j"},
	} {
		t.Run(name, func(t *testing.T) {
			p := passOf(storagev1alpha1.VolumeAttachmentDPU{})
			p.ended(&tc.on, tc.undrained)
			if !slices.Equal(p.undrained, tc.want) {
				t.Errorf("not drained are %q, want %q", p.undrained, tc.want)
			}
			p.dpu = tc.on
			if p.kept(tc.now); !ptr.Equal(p.dpu.KeptEpoch, tc.kept) {
				t.Errorf("kept is of epoch %v, want %v", p.dpu.KeptEpoch, tc.kept)
			}
			if got := p.leftBy(tc.now); got != tc.left {
				t.Errorf("left by %q, want %q", got, tc.left)
			}
		})
	}
}

// TestUnrecorded: where it is not on record which incarnation has shown the volume, an unknown one is waited
// for; else that one is asked.
func TestUnrecorded(t *testing.T) {
	for incarnation, want := range map[string][]string{"": {unknown}, "i": nil} {
		p := passOf(storagev1alpha1.VolumeAttachmentDPU{Incarnation: incarnation})
		p.dpu.Incarnation = "of this pass"
		if p.unrecorded(); !slices.Equal(p.undrained, want) {
			t.Errorf("%q: not drained are %q", incarnation, p.undrained)
		}
	}
}

// TestDrainOfSeveral: the longest is waited for, to its very end, and is the one on record.
func TestDrainOfSeveral(t *testing.T) {
	m := newMachine(t, newCluster(t), "dpu-1")
	p := passOf(storagev1alpha1.VolumeAttachmentDPU{Undrained: "first"})
	if left := p.drain(m.exposures); left != drainTime || p.dpu.Undrained != "first" {
		t.Errorf("%s of %q", left, p.dpu.Undrained)
	}
	m.clock.Step(time.Second)
	p.undrained = append(p.undrained, "second", "first")
	if left := p.drain(m.exposures); left != drainTime || p.dpu.Undrained != "second" {
		t.Errorf("%s of %q", left, p.dpu.Undrained)
	}
	m.clock.Step(drainTime - time.Nanosecond)
	err := p.drained(m.exposures)
	if !waits(err) || !strings.Contains(err.Error(), "for up to 10s yet") || p.dpu.Undrained != "second" {
		t.Errorf("a nanosecond is left, and it says %v, of %q", err, p.dpu.Undrained)
	}
	m.clock.Step(time.Nanosecond)
	if err := p.drained(m.exposures); err != nil || p.dpu.Undrained != "" {
		t.Errorf("nothing is left, and it says %v, of %q", err, p.dpu.Undrained)
	}
	many := passOf(storagev1alpha1.VolumeAttachmentDPU{Undrained: "first"})
	many.attachment.Spec.Epoch = 0
	many.volume = &storagev1alpha1.Volume{}
	many.volume.Spec.Request.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	many.undrained = []string{"third"}
	if left := many.drain(m.exposures); left != 0 || many.dpu.Undrained != "" {
		t.Errorf("several writers wait %s for %q", left, many.dpu.Undrained)
	}
}

// TestObserve: the status says what SNAP shows, and nothing of what was there before.
func TestObserve(t *testing.T) {
	before := storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, PreEmulated: true, Epoch: 2, KeptEpoch: ptr.To(int64(2)), PCIDeviceAddress: "old", FuncVUID: "old",
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeUUID: "old"}, FsdevAttrs: &storagev1alpha1.FsdevAttrs{FilesystemTag: "old"},
	}
	nvme := &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: "u"}
	for name, tc := range map[string]struct {
		e    provisioner.Exposure
		want storagev1alpha1.VolumeAttachmentDPU
	}{
		"visible": {
			provisioner.Exposure{Visible: true, PCIAddress: "p", VUID: "v", NamespaceID: 1, UUID: "u"},
			storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 3, PCIDeviceAddress: "p", FuncVUID: "v", BdevAttrs: nvme},
		},
		"hidden": {
			provisioner.Exposure{Hidden: true, PCIAddress: "p", VUID: "v", NamespaceID: 1, UUID: "u"},
			storagev1alpha1.VolumeAttachmentDPU{PreEmulated: true, PCIDeviceAddress: "p", FuncVUID: "v", BdevAttrs: nvme},
		},
		"in part": {
			provisioner.Exposure{PCIAddress: "p", NamespaceID: 1, UUID: "u"},
			storagev1alpha1.VolumeAttachmentDPU{KeptEpoch: ptr.To(int64(2)), PCIDeviceAddress: "p", BdevAttrs: nvme},
		},
		"by virtio-fs": {
			provisioner.Exposure{Visible: true, PCIAddress: "p", Tag: "t"},
			storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 3, PCIDeviceAddress: "p", FsdevAttrs: &storagev1alpha1.FsdevAttrs{FilesystemTag: "t"}},
		},
	} {
		p := passOf(before)
		if p.observe(tc.e); cmp.Diff(tc.want, p.dpu) != "" {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(tc.want, p.dpu))
		}
	}
}

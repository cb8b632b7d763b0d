package csi

import (
	"errors"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

type params = map[string]string

// virtiofs is Options.Shares as the DPF platform has it.
func virtiofs(keys map[string]string) bool { return keys["emulation"] == "virtiofs" }

// TestSharesIsAskedOfEachVolume: what is shared may be written by many nodes, and
// is no block device; all else is as without it.
func TestSharesIsAskedOfEachVolume(t *testing.T) {
	shared, plain := params{"policy": "p", "emulation": "virtiofs"}, params{"policy": "p"}
	for name, tc := range map[string]struct {
		context params
		mode    provisioner.VolumeMode
		caps    []*csispec.VolumeCapability
		ok      bool
	}{
		"shared, many write":     {shared, provisioner.Filesystem, caps(mountCap(mnmw, "")), true},
		"shared, one writes":     {shared, provisioner.Filesystem, caps(mountCap(snw, "")), true},
		"shared, as a block":     {shared, provisioner.Filesystem, caps(blockCap(snw)), false},
		"NVMe, many write files": {plain, provisioner.Block, caps(mountCap(mnmw, "")), false},
		"NVMe, many write":       {plain, provisioner.Block, caps(blockCap(mnmw)), true},
		"NVMe, one writes files": {plain, provisioner.Block, caps(mountCap(snw, "")), true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &platform{volume: provisioner.Volume{ID: "v", Mode: tc.mode, CapacityBytes: 1}}
			o := Options{BlockOnly: true, Shares: virtiofs}
			o.Volumes, o.Attachments = p, p
			s := New(o)
			_, created := s.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: tc.caps, Parameters: tc.context})
			_, published := s.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{
				VolumeId: "v", NodeId: "n", VolumeCapability: tc.caps[0], VolumeContext: tc.context,
			})
			validated, err := s.ValidateVolumeCapabilities(t.Context(), &csispec.ValidateVolumeCapabilitiesRequest{VolumeId: "v", VolumeCapabilities: tc.caps})
			if err != nil || (validated.GetConfirmed() != nil) != tc.ok {
				t.Errorf("confirmed: %v, %v", validated, err)
			}
			for what, err := range map[string]error{"create": created, "publish": published} {
				if (err == nil) != tc.ok || err != nil && !errors.Is(err, provisioner.ErrInvalid) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

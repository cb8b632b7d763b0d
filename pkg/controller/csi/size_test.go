package csi

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestSizeOfFileSystems: a volume that is asked for to hold a file system can.
func TestSizeOfFileSystems(t *testing.T) {
	const mib = 1 << 20
	shared := Options{BlockOnly: true, Shares: virtiofs}
	for name, tc := range map[string]struct {
		o          Options
		parameters params
		capability *csi.VolumeCapability
		asked      *csi.CapacityRange
		want       int64
	}{
		"ext4 of 1 MiB":             {capability: mountCap(snw, ""), asked: bytes(mib, 0), want: 8 * mib},
		"ext4 of 8 MiB":             {capability: mountCap(snw, "ext4"), asked: bytes(8*mib, 8*mib), want: 8 * mib},
		"ext4 of 1 MiB, 10 at most": {capability: mountCap(snw, ""), asked: bytes(mib, 10*mib), want: 8 * mib},
		"ext4 of 7 MiB at most":     {capability: mountCap(snw, ""), asked: bytes(mib, 7*mib)},
		"7 MiB at most":             {capability: mountCap(snw, ""), asked: bytes(0, 7*mib)},
		"xfs of 1 MiB":              {capability: mountCap(snw, "xfs"), asked: bytes(mib, 0), want: 301 * mib},
		"xfs of 302 MiB":            {capability: mountCap(snw, "xfs"), asked: bytes(302*mib, 0), want: 302 * mib},
		"xfs of 300 MiB at most":    {capability: mountCap(snw, "xfs"), asked: bytes(mib, 300*mib)},
		"a block device of 1 MiB":   {capability: blockCap(snw), asked: bytes(mib, mib), want: mib},
		"the platform's own": {
			o: shared, parameters: params{"policy": "p", "emulation": "virtiofs"},
			capability: mountCap(snw, ""), asked: bytes(mib, 2*mib), want: mib,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &platform{volume: provisioner.Volume{ID: "id", CapacityBytes: 42}}
			tc.o.Volumes = p
			_, err := New(tc.o).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
				Name: "v", CapacityRange: tc.asked, VolumeCapabilities: caps(tc.capability), Parameters: tc.parameters,
			})
			if tc.want == 0 {
				if !errors.Is(err, provisioner.ErrOutOfRange) || len(p.calls) > 0 {
					t.Errorf("error %v after the calls %v, want %v and none", err, p.calls, provisioner.ErrOutOfRange)
				}
				return
			}
			if err != nil || p.spec.CapacityBytes != tc.want || p.spec.LimitBytes != tc.asked.GetLimitBytes() {
				t.Errorf("asked for %d bytes, at most %d (%v); want %d", p.spec.CapacityBytes, p.spec.LimitBytes, err, tc.want)
			}
		})
	}
}

package csi

import (
	"errors"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestSizeOfFileSystems: a volume that is asked for to hold a file system can.
func TestSizeOfFileSystems(t *testing.T) {
	const mib = 1 << 20
	shared := Options{BlockOnly: true, Shares: virtiofs}
	for name, tc := range map[string]struct {
		o          Options
		parameters params
		capability *csispec.VolumeCapability
		asked      *csispec.CapacityRange
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
			_, err := New(tc.o).CreateVolume(t.Context(), &csispec.CreateVolumeRequest{
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

// FuzzSize: a size that is accepted keeps both promises, and a refusal says which
// one cannot be kept.
func FuzzSize(f *testing.F) {
	f.Add(int64(0), int64(0), int64(1<<30), "ext4")
	f.Add(int64(1), int64(7<<20), int64(1<<30), "xfs")
	f.Add(int64(-1), int64(0), int64(1), "")
	f.Add(int64(2), int64(1), int64(1), "")
	f.Add(int64(1)<<62, int64(1)<<62, int64(1), "ext4")
	f.Fuzz(func(t *testing.T, required, limit, def int64, fsType string) {
		def = max(1, def)
		size, most, err := parseSize(bytes(required, limit), def)
		switch {
		case required < 0 || limit < 0:
			if !errors.Is(err, provisioner.ErrInvalid) {
				t.Fatalf("%d to %d: %v", required, limit, err)
			}
			return
		case limit > 0 && required > limit:
			if !errors.Is(err, provisioner.ErrOutOfRange) {
				t.Fatalf("%d to %d: %v", required, limit, err)
			}
			return
		case err != nil || most != limit || size <= 0 || size < required || limit > 0 && size > limit:
			t.Fatalf("%d to %d: %d to %d, %v", required, limit, size, most, err)
		}
		least := hostdev.LeastBytes(fsType)
		fits, err := fitting(size, most, []csiserver.Capability{{FSType: fsType}})
		if refused := most > 0 && most < least; refused != errors.Is(err, provisioner.ErrOutOfRange) || refused != (err != nil) {
			t.Fatalf("%q in %d to %d: %v", fsType, size, most, err)
		}
		if err == nil && (fits < size || fits < least || most > 0 && fits > most) {
			t.Fatalf("%q in %d to %d: %d", fsType, size, most, fits)
		}
	})
}

package devices

import (
	"errors"
	"slices"
	"testing"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// TestOpenAgainLooksAtTheSize: a device that is there follows its volume; one
// that is new has its size anyway.
func TestOpenAgainLooksAtTheSize(t *testing.T) {
	for name, c := range map[string]struct {
		fail error
		want error
	}{
		"looked at":                   {},
		"a service that cannot":       {fail: &snaprpc.Error{Code: snaprpc.CodeMethodNotFound}},
		"a device lost at the moment": {fail: &snaprpc.Error{Code: snaprpc.CodeNoDevice}},
		"a target out of reach":       {fail: &snaprpc.Error{Code: snaprpc.CodeUnreachable}, want: provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"file", "target"} {
				s, snap := openVendor(t, localvendor.Options{}), newFakeSNAP()
				h, spec := NewHost(snap, s.dir, t.TempDir()), attachedImage(t, s, "one")
				if kind == "target" {
					spec.PublishContext = map[string]string{records.ContextTargetAddress: "192.0.2.1:1", records.ContextTargetExport: "one@dpu#t"}
				}
				if _, err := h.Open(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
				if len(snap.rescans) != 0 {
					t.Errorf("%s: a new device was looked at", kind)
				}
				snap.fail["rescan"] = []error{c.fail}
				if _, err := h.Open(t.Context(), spec); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
					t.Errorf("%s: %v, want %v", kind, err, c.want)
				}
				if !slices.Equal(snap.rescans, []string{records.Device(spec.VolumeID)}) {
					t.Errorf("%s: looked at %v", kind, snap.rescans)
				}
			}
		})
	}
}

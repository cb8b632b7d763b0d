package zerotrust

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The keys of the publish context by which a device is handed to the node service.
const (
	keyAddress   = "address"
	keyNamespace = "namespace"
	keyUUID      = "uuid"
	keyTag       = "tag"
)

// Host is provisioner.Host by devices alone: a volume is where the publish
// context says.
type Host struct{ finder *hostdev.Finder }

// NewHost returns a Host that finds devices by finder.
func NewHost(finder *hostdev.Finder) *Host { return &Host{finder: finder} }

var _ provisioner.Host = (*Host)(nil)

// Open looks the device up once more, at the place that was found: if another
// one is there by now it is not opened.
func (h *Host) Open(_ context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if spec.PublishContext[keyTag] != "" {
		return h.openShared(spec)
	}
	nsid, err := hostdev.ParseNamespaceID(spec.PublishContext[keyNamespace])
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("%w: %w", err, provisioner.ErrInvalid)
	}
	b, err := h.finder.Find(spec.PublishContext[keyAddress], nsid)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("%w: %w", err, provisioner.ErrUnavailable)
	}
	if want := spec.PublishContext[keyUUID]; b.UUID != want {
		return provisioner.Device{}, fmt.Errorf("namespace %d of %s was %q when it was listed and is %q now: %w", nsid, b.Address, want, b.UUID, provisioner.ErrUnavailable)
	}
	return provisioner.Device{VolumeID: spec.VolumeID, Name: b.Name, Path: b.Path, Mode: spec.Mode}, nil
}

func (h *Host) openShared(spec provisioner.OpenSpec) (provisioner.Device, error) {
	want := hostdev.Share{Tag: spec.PublishContext[keyTag], Address: spec.PublishContext[keyAddress]}
	shares, err := h.finder.Shares()
	if err != nil {
		return provisioner.Device{}, err
	}
	if !slices.Contains(shares, want) {
		return provisioner.Device{}, fmt.Errorf("file system %s was at %s when it was listed, and is not there now: %w", want.Tag, want.Address, provisioner.ErrUnavailable)
	}
	return provisioner.Device{VolumeID: spec.VolumeID, Name: want.Tag, Tag: want.Tag, Mode: spec.Mode}, nil
}

// placeOf is the publish context of a device.
func placeOf(b Shown) map[string]string {
	if b.Tag != "" {
		return map[string]string{keyAddress: b.Address, keyTag: b.Tag}
	}
	return map[string]string{keyAddress: b.Address, keyNamespace: strconv.FormatInt(b.NamespaceID, 10), keyUUID: b.UUID}
}

// Close does nothing: the DPU decides what is shown.
func (*Host) Close(context.Context, string, string) error { return nil }

// Lookup returns ErrNotFound: nothing is remembered.
func (*Host) Lookup(context.Context, string) (provisioner.Device, error) {
	return provisioner.Device{}, provisioner.ErrNotFound
}

// List returns nothing: nothing is remembered.
func (*Host) List(context.Context) ([]provisioner.Device, error) { return nil, nil }

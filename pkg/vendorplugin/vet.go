package vendorplugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// The bounds of what a plugin says of itself: of the name by the plugin API, of the rest
// as CSI bounds the same fields (spec "Size Limits").
const (
	maxName     = 63
	maxVersion  = 128
	maxManifest = 4 << 10
)

// Info says who a plugin is.
type Info struct {
	// Name in domain notation, at most 63 characters, and Version, at most 128 bytes.
	Name, Version string
	// Manifest is opaque; all keys and values have at most 4 KiB together.
	Manifest map[string]string
}

// faults say what of it the plugin API does not allow.
func (i Info) faults() (out []string) {
	switch {
	case i.Name == "":
		out = append(out, "it gives itself no name")
	case len(i.Name) > maxName:
		out = append(out, fmt.Sprintf("its name %s has %d characters, and may have %d", i.Name, len(i.Name), maxName))
	case len(validation.IsDNS1123Subdomain(strings.ToLower(i.Name))) > 0:
		out = append(out, fmt.Sprintf("its name %q is no domain name", i.Name))
	}
	switch {
	case i.Version == "":
		out = append(out, "it tells no version")
	case len(i.Version) > maxVersion:
		out = append(out, fmt.Sprintf("its version has %d bytes, and may have %d", len(i.Version), maxVersion))
	}
	size := 0
	for key, value := range i.Manifest {
		size += len(key) + len(value)
	}
	if size > maxManifest {
		out = append(out, fmt.Sprintf("its manifest has %d bytes, and may have %d", size, maxManifest))
	}
	return out
}

// Identity is what a vendor plugin says of itself.
type Identity interface {
	Info(ctx context.Context) (Info, error)
	Probe(ctx context.Context) error
	Capabilities(ctx context.Context) (Capabilities, error)
	Provider(ctx context.Context) (string, error)
	Epochs(ctx context.Context) (bool, error)
}

// Devices are what a vendor plugin makes.
type Devices interface {
	CreateDevice(ctx context.Context, spec provisioner.OpenSpec) (string, error)
	DeleteDevice(ctx context.Context, volumeID, deviceName string) error
	GetDevice(ctx context.Context, volumeID, deviceName string) (provisioner.Device, error)
	ListDevices(ctx context.Context) ([]provisioner.Device, error)
	provisioner.Epochs
}

// Plugin is a vendor plugin on this DPU; Client is one.
type Plugin interface {
	Identity
	Devices
}

var _ Plugin = (*Client)(nil)

// Vetted is a plugin that was asked who it is, and found fit.
type Vetted struct {
	Plugin
	Info Info
	Can  Capabilities
	// Provider is the SNAP service that it works with, never empty.
	Provider string
	// Remarks say what it tells of itself that the plugin API does not allow. DPF uses
	// such a plugin, and so does Moor.
	Remarks []string
}

// Vet asks a plugin what DPF asks before the first use of a connection, in its
// order: who it is, whether it is ready, what it can do, and which SNAP service
// it works with. A plugin that does not serve GetSNAPProvider means the default
// one; one that can make no kind of device is ErrUnsupported. Whether it opens devices
// under epochs is asked after all that.
func Vet(ctx context.Context, p Plugin) (Vetted, error) {
	v := Vetted{Plugin: p}
	var err error
	if v.Info, err = p.Info(ctx); err != nil {
		return Vetted{}, err
	}
	v.Remarks = v.Info.faults()
	if err := p.Probe(ctx); err != nil {
		return Vetted{}, err
	}
	if v.Can, err = p.Capabilities(ctx); err != nil {
		return Vetted{}, err
	}
	if !v.Can.Block && !v.Can.Filesystem {
		return Vetted{}, fmt.Errorf("it says that it can make neither block nor file system devices: %w", provisioner.ErrUnsupported)
	}
	v.Provider, err = p.Provider(ctx)
	if errors.Is(err, provisioner.ErrUnsupported) {
		v.Provider, err = DefaultProvider, nil
	}
	if err != nil {
		return Vetted{}, err
	}
	// Asked last, so that what DPF asks comes in DPF's order.
	if v.Can.Epochs, err = p.Epochs(ctx); err != nil {
		return Vetted{}, err
	}
	return v, nil
}

package csiserver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// FSTypes are the file systems Moor makes; the first is the default.
var FSTypes = []string{"ext4", "xfs"}

// Capability is a CSI VolumeCapability in Kubernetes' words.
type Capability struct {
	Mode   provisioner.VolumeMode
	Access provisioner.AccessMode
	// ReadOnly is true if the access mode itself forbids writing.
	ReadOnly bool
	// FSType is one of FSTypes; empty for Block.
	FSType string
	// NamedFSType is FSType if the request names one, and empty if it is the default.
	NamedFSType string
	// MountFlags are for mount(8) -o; empty for Block.
	MountFlags []string
}

// ParseCapability reads and checks a VolumeCapability. Every error wraps
// ErrInvalid and names what is allowed.
func ParseCapability(c *csispec.VolumeCapability) (Capability, error) {
	if c == nil {
		return Capability{}, Invalid("volume capability is missing")
	}
	out, err := parseAccess(c.GetAccessMode().GetMode())
	if err != nil {
		return Capability{}, err
	}
	switch t := c.GetAccessType().(type) {
	case *csispec.VolumeCapability_Block:
		out.Mode = provisioner.Block
	case *csispec.VolumeCapability_Mount:
		out.Mode = provisioner.Filesystem
		out.MountFlags = t.Mount.GetMountFlags()
		out.NamedFSType = t.Mount.GetFsType()
		out.FSType = cmp.Or(out.NamedFSType, FSTypes[0])
		if !slices.Contains(FSTypes, out.FSType) {
			return Capability{}, Invalid("fsType %q is not supported, allowed are %v and \"\" (%s)",
				out.FSType, FSTypes, FSTypes[0])
		}
	default:
		return Capability{}, Invalid("volume capability names neither block nor mount access")
	}
	return out, nil
}

func parseAccess(m csispec.VolumeCapability_AccessMode_Mode) (Capability, error) {
	switch m {
	case csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csispec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return Capability{Access: provisioner.ReadWriteOnce}, nil
	case csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		return Capability{Access: provisioner.ReadWriteOncePod}, nil
	case csispec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		return Capability{Access: provisioner.ReadWriteOnce, ReadOnly: true}, nil
	case csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		return Capability{Access: provisioner.ReadOnlyMany, ReadOnly: true}, nil
	case csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return Capability{Access: provisioner.ReadWriteMany}, nil
	case csispec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:
		return Capability{}, Invalid("access mode MULTI_NODE_SINGLE_WRITER has no counterpart in Kubernetes: use ReadWriteOnce or ReadWriteMany")
	default:
		return Capability{}, Invalid("access mode %s is not supported", m)
	}
}

// ParseCapabilities reads a list of them, which may not be empty nor mix Block
// with Filesystem.
func ParseCapabilities(list []*csispec.VolumeCapability) ([]Capability, error) {
	if len(list) == 0 {
		return nil, Invalid("volume capabilities are missing")
	}
	out := make([]Capability, 0, len(list))
	for _, c := range list {
		p, err := ParseCapability(c)
		if err != nil {
			return nil, err
		}
		if p.Mode != "" && len(out) > 0 && out[0].Mode != p.Mode {
			return nil, Invalid("volume capabilities ask for block and for mount access: a volume has one mode")
		}
		out = append(out, p)
	}
	return out, nil
}

// AccessModes is the set of access modes in caps, in their order.
func AccessModes(caps []Capability) []provisioner.AccessMode {
	var out []provisioner.AccessMode
	for _, c := range caps {
		if !slices.Contains(out, c.Access) {
			out = append(out, c.Access)
		}
	}
	return out
}

// Unshared refuses a file system of a block device that several nodes may
// write: ext4 and xfs on two nodes destroy it.
func Unshared(c Capability) error {
	if c.Mode == provisioner.Filesystem && c.Access == provisioner.ReadWriteMany {
		return Invalid("%s cannot be written by several nodes at once: use volumeMode Block, or ReadWriteOnce", c.FSType)
	}
	return nil
}

// Invalid is an error with that text that wraps ErrInvalid.
func Invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, provisioner.ErrInvalid)...)
}

// Require checks that none of the named fields is empty; pairs are name, value,
// name, value... The error names each one that is missing.
func Require(pairs ...string) error {
	var errs []error
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			errs = append(errs, Invalid("%s is missing", pairs[i]))
		}
	}
	return errors.Join(errs...)
}

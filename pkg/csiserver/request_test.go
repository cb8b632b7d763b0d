package csiserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func capability(m csi.VolumeCapability_AccessMode_Mode, fsType string, flags ...string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: m}}
	if fsType == "block" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}}
	}
	return c
}

const (
	snw  = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	snmw = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	snsw = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	snro = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	mnro = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	mnsw = csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	mnmw = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

func TestParseCapability(t *testing.T) {
	const file, block = provisioner.Filesystem, provisioner.Block
	for name, tc := range map[string]struct {
		in    *csi.VolumeCapability
		want  Capability
		words string
	}{
		"single writer":       {capability(snw, "block"), Capability{Mode: block, Access: provisioner.ReadWriteOnce}, ""},
		"multi writer":        {capability(snmw, "block"), Capability{Mode: block, Access: provisioner.ReadWriteOnce}, ""},
		"one pod":             {capability(snsw, "block"), Capability{Mode: block, Access: provisioner.ReadWriteOncePod}, ""},
		"one reader":          {capability(snro, "block"), Capability{Mode: block, Access: provisioner.ReadWriteOnce, ReadOnly: true}, ""},
		"many readers":        {capability(mnro, "block"), Capability{Mode: block, Access: provisioner.ReadOnlyMany, ReadOnly: true}, ""},
		"many writers":        {capability(mnmw, "block"), Capability{Mode: block, Access: provisioner.ReadWriteMany}, ""},
		"default file system": {capability(snw, ""), Capability{Mode: file, Access: provisioner.ReadWriteOnce, FSType: "ext4"}, ""},
		"ext4":                {capability(snw, "ext4"), Capability{Mode: file, Access: provisioner.ReadWriteOnce, FSType: "ext4"}, ""},
		"xfs with flags":      {capability(snw, "xfs", "noatime"), Capability{Mode: file, Access: provisioner.ReadWriteOnce, FSType: "xfs", MountFlags: []string{"noatime"}}, ""},
		"nil":                 {nil, Capability{}, "missing"},
		"many nodes, one pen": {capability(mnsw, "block"), Capability{}, "MULTI_NODE_SINGLE_WRITER"},
		"unknown mode":        {capability(0, "block"), Capability{}, "UNKNOWN"},
		"mode of the future":  {capability(99, "block"), Capability{}, "99"},
		"ntfs":                {capability(snw, "ntfs"), Capability{}, "[ext4 xfs]"},
		"EXT4":                {capability(snw, "EXT4"), Capability{}, "[ext4 xfs]"},
		"neither":             {&csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: snw}}, Capability{}, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCapability(tc.in)
			if tc.words != "" {
				if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), tc.words) {
					t.Fatalf("error %v, want ErrInvalid with %q", err, tc.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestParseCapabilities(t *testing.T) {
	if _, err := ParseCapabilities(nil); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("none: %v", err)
	}
	mixed := []*csi.VolumeCapability{capability(snw, "block"), capability(snw, "ext4")}
	if _, err := ParseCapabilities(mixed); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("block and mount: %v", err)
	}
	caps, err := ParseCapabilities([]*csi.VolumeCapability{capability(snw, ""), capability(snmw, ""), capability(mnro, "")})
	if err != nil {
		t.Fatal(err)
	}
	want := []provisioner.AccessMode{provisioner.ReadWriteOnce, provisioner.ReadOnlyMany}
	if d := cmp.Diff(want, AccessModes(caps)); d != "" {
		t.Error(d)
	}
}

func TestRequire(t *testing.T) {
	if err := Require("volume id", "v", "node id", "n"); err != nil {
		t.Error(err)
	}
	err := Require("volume id", "", "node id", "n", "path", "")
	if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), "volume id") || !strings.Contains(err.Error(), "path") || strings.Contains(err.Error(), "node id") {
		t.Errorf("error %v, want the two that are missing", err)
	}
}

package csiserver

import (
	"errors"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func capability(m csispec.VolumeCapability_AccessMode_Mode, fsType string, flags ...string) *csispec.VolumeCapability {
	c := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{Mode: m}}
	if fsType == "block" {
		c.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}}
	}
	return c
}

const (
	snw  = csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	snmw = csispec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	snsw = csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	snro = csispec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	mnro = csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	mnsw = csispec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	mnmw = csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

func TestParseCapability(t *testing.T) {
	const file, block = provisioner.Filesystem, provisioner.Block
	for name, tc := range map[string]struct {
		in    *csispec.VolumeCapability
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
		"ext4":                {capability(snw, "ext4"), Capability{Mode: file, Access: provisioner.ReadWriteOnce, FSType: "ext4", NamedFSType: "ext4"}, ""},
		"xfs with flags":      {capability(snw, "xfs", "noatime"), Capability{Mode: file, Access: provisioner.ReadWriteOnce, FSType: "xfs", NamedFSType: "xfs", MountFlags: []string{"noatime"}}, ""},
		"nil":                 {nil, Capability{}, "missing"},
		"many nodes, one pen": {capability(mnsw, "block"), Capability{}, "MULTI_NODE_SINGLE_WRITER"},
		"unknown mode":        {capability(0, "block"), Capability{}, "UNKNOWN"},
		"mode of the future":  {capability(99, "block"), Capability{}, "99"},
		"ntfs":                {capability(snw, "ntfs"), Capability{}, "[ext4 xfs]"},
		"EXT4":                {capability(snw, "EXT4"), Capability{}, "[ext4 xfs]"},
		"neither":             {&csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{Mode: snw}}, Capability{}, "neither"},
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
	mixed := []*csispec.VolumeCapability{capability(snw, "block"), capability(snw, "ext4")}
	if _, err := ParseCapabilities(mixed); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("block and mount: %v", err)
	}
	caps, err := ParseCapabilities([]*csispec.VolumeCapability{capability(snw, ""), capability(snmw, ""), capability(mnro, "")})
	if err != nil {
		t.Fatal(err)
	}
	want := []provisioner.AccessMode{provisioner.ReadWriteOnce, provisioner.ReadOnlyMany}
	if d := cmp.Diff(want, AccessModes(caps)); d != "" {
		t.Error(d)
	}
}

// FuzzParseCapabilities: a list is read whole or refused, its volume has one mode,
// and a reader is never taken for a writer.
func FuzzParseCapabilities(f *testing.F) {
	f.Add(int32(1), "ext4", true, int32(1), "ext4", true)
	f.Add(int32(1), "", true, int32(3), "", false)
	f.Add(int32(5), "xfs", false, int32(4), "", false)
	f.Add(int32(99), "btrfs", true, int32(-1), "", false)
	f.Fuzz(func(t *testing.T, mode1 int32, fs1 string, mount1 bool, mode2 int32, fs2 string, mount2 bool) {
		one := func(mode int32, fsType string, mounted bool) *csispec.VolumeCapability {
			c := &csispec.VolumeCapability{
				AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_Mode(mode)},
				AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
			}
			if mounted {
				c.AccessType = &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType}}
			}
			return c
		}
		list := []*csispec.VolumeCapability{one(mode1, fs1, mount1), one(mode2, fs2, mount2)}
		got, err := ParseCapabilities(list)
		if err != nil {
			if !errors.Is(err, provisioner.ErrInvalid) || got != nil {
				t.Fatalf("refused with %v, %v", got, err)
			}
			return
		}
		if len(got) != len(list) || mount1 != mount2 || got[0].Mode != got[1].Mode {
			t.Fatalf("%v became %+v", list, got)
		}
		for i, c := range got {
			mode := list[i].GetAccessMode().GetMode()
			reader := strings.HasSuffix(mode.String(), "READER_ONLY")
			shared := strings.HasPrefix(mode.String(), "MULTI_NODE")
			if c.ReadOnly != reader || shared != (c.Access == provisioner.ReadOnlyMany || c.Access == provisioner.ReadWriteMany) {
				t.Fatalf("%s became %+v", mode, c)
			}
			if (c.Mode == provisioner.Filesystem) != (list[i].GetMount() != nil) {
				t.Fatalf("%v became %+v", list[i], c)
			}
			if again, err := ParseCapability(list[i]); err != nil || !cmp.Equal(again, c) {
				t.Fatalf("alone it is %+v, %v, in a list %+v", again, err, c)
			}
		}
	})
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

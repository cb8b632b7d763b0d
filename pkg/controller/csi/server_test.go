package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// platform records what it was asked, and answers what a test says.
type platform struct {
	spec    provisioner.VolumeSpec
	attach  provisioner.AttachSpec
	volume  provisioner.Volume
	err     error
	calls   []string
	context map[string]string
}

func (p *platform) Create(_ context.Context, s provisioner.VolumeSpec) (provisioner.Volume, error) {
	p.spec = s
	p.calls = append(p.calls, "create")
	return p.volume, p.err
}

func (p *platform) Delete(_ context.Context, id string) error {
	p.calls = append(p.calls, "delete "+id)
	return p.err
}

func (p *platform) Get(_ context.Context, id string) (provisioner.Volume, error) {
	p.calls = append(p.calls, "get "+id)
	return p.volume, p.err
}

func (p *platform) Attach(_ context.Context, s provisioner.AttachSpec) (provisioner.Attachment, error) {
	p.attach = s
	p.calls = append(p.calls, "attach")
	return provisioner.Attachment{PublishContext: p.context}, p.err
}

func (p *platform) Detach(_ context.Context, id, node string) error {
	p.calls = append(p.calls, fmt.Sprintf("detach %s from %q", id, node))
	return p.err
}

const (
	snw  = csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	snsw = csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	snro = csispec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	mnro = csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	mnsw = csispec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	mnmw = csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

func mountCap(m csispec.VolumeCapability_AccessMode_Mode, fs string) *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fs}},
	}
}

func blockCap(m csispec.VolumeCapability_AccessMode_Mode) *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
	}
}

func caps(c ...*csispec.VolumeCapability) []*csispec.VolumeCapability { return c }

func bytes(required, limit int64) *csispec.CapacityRange {
	return &csispec.CapacityRange{RequiredBytes: required, LimitBytes: limit}
}

const gib = 1 << 30

func TestCreateVolume(t *testing.T) {
	rwo := []provisioner.AccessMode{provisioner.ReadWriteOnce}
	for name, tc := range map[string]struct {
		o    Options
		req  *csispec.CreateVolumeRequest
		want provisioner.VolumeSpec
	}{
		"defaults": {
			Options{},
			&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(mountCap(snw, ""))},
			provisioner.VolumeSpec{Name: "v", CapacityBytes: gib, AccessModes: rwo, Mode: provisioner.Filesystem, Parameters: params{}},
		},
		"size 0": {
			Options{},
			&csispec.CreateVolumeRequest{Name: "v", CapacityRange: bytes(0, 0), VolumeCapabilities: caps(blockCap(snw))},
			provisioner.VolumeSpec{Name: "v", CapacityBytes: gib, AccessModes: rwo, Mode: provisioner.Block, Parameters: params{}},
		},
		"only a limit below the default": {
			Options{},
			&csispec.CreateVolumeRequest{Name: "v", CapacityRange: bytes(0, 5), VolumeCapabilities: caps(blockCap(snw))},
			provisioner.VolumeSpec{Name: "v", CapacityBytes: 5, LimitBytes: 5, AccessModes: rwo, Mode: provisioner.Block, Parameters: params{}},
		},
		"size and limit": {
			Options{},
			&csispec.CreateVolumeRequest{Name: "v", CapacityRange: bytes(7, 9), VolumeCapabilities: caps(blockCap(snw))},
			provisioner.VolumeSpec{Name: "v", CapacityBytes: 7, LimitBytes: 9, AccessModes: rwo, Mode: provisioner.Block, Parameters: params{}},
		},
		"several modes": {
			Options{},
			&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(blockCap(snsw), blockCap(mnmw), blockCap(snro))},
			provisioner.VolumeSpec{
				Name: "v", CapacityBytes: gib, Mode: provisioner.Block, Parameters: params{},
				AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOncePod, provisioner.ReadWriteMany, provisioner.ReadWriteOnce},
			},
		},
		"a file system over a block platform": {
			Options{BlockOnly: true},
			&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(mountCap(snw, "xfs")), Parameters: params{"policy": "p", "functionType": "PF", "csi.storage.k8s.io/fstype": "xfs", "csi.storage.k8s.io/pv/name": "x"}},
			provisioner.VolumeSpec{
				Name: "v", CapacityBytes: gib, AccessModes: rwo, Mode: provisioner.Block,
				Parameters: params{"policy": "p", "functionType": "PF"},
			},
		},
		"a file system of the platform among block devices": {
			Options{BlockOnly: true, Shares: virtiofs},
			&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(mountCap(mnmw, "")), Parameters: params{"policy": "p", "emulation": "virtiofs"}},
			provisioner.VolumeSpec{
				Name: "v", CapacityBytes: gib, Mode: provisioner.Filesystem,
				AccessModes: []provisioner.AccessMode{provisioner.ReadWriteMany},
				Parameters:  params{"policy": "p", "emulation": "virtiofs"},
			},
		},
		"a shared file system": {
			Options{SharedFilesystem: true},
			&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(mountCap(mnmw, ""))},
			provisioner.VolumeSpec{
				Name: "v", CapacityBytes: gib, Mode: provisioner.Filesystem, Parameters: params{},
				AccessModes: []provisioner.AccessMode{provisioner.ReadWriteMany},
			},
		},
		"the longest name": {
			Options{},
			&csispec.CreateVolumeRequest{Name: strings.Repeat("n", 253), VolumeCapabilities: caps(blockCap(snw))},
			provisioner.VolumeSpec{Name: strings.Repeat("n", 253), CapacityBytes: gib, AccessModes: rwo, Mode: provisioner.Block, Parameters: params{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &platform{volume: provisioner.Volume{ID: "id", CapacityBytes: 42, Context: params{"storagePolicyName": "p"}}}
			tc.o.Volumes = p
			resp, err := New(tc.o).CreateVolume(t.Context(), tc.req)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, p.spec); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			v := resp.GetVolume()
			if v.GetVolumeId() != "id" || v.GetCapacityBytes() != 42 || v.GetVolumeContext()["storagePolicyName"] != "p" {
				t.Errorf("answer %v", v)
			}
		})
	}
}

func TestCreateVolumeRefuses(t *testing.T) {
	one := caps(blockCap(snw))
	for name, tc := range map[string]struct {
		req   *csispec.CreateVolumeRequest
		want  error
		words string
	}{
		"no name":           {&csispec.CreateVolumeRequest{VolumeCapabilities: one}, provisioner.ErrInvalid, "name is missing"},
		"long name":         {&csispec.CreateVolumeRequest{Name: strings.Repeat("n", 254), VolumeCapabilities: one}, provisioner.ErrInvalid, "254 bytes, at most 253"},
		"no capabilities":   {&csispec.CreateVolumeRequest{Name: "v"}, provisioner.ErrInvalid, "capabilities are missing"},
		"nil capability":    {&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(nil)}, provisioner.ErrInvalid, "missing"},
		"mixed":             {&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(blockCap(snw), mountCap(snw, ""))}, provisioner.ErrInvalid, "one mode"},
		"ntfs":              {&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(mountCap(snw, "ntfs"))}, provisioner.ErrInvalid, "ext4 xfs"},
		"multi-node single": {&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(blockCap(mnsw))}, provisioner.ErrInvalid, "MULTI_NODE_SINGLE_WRITER"},
		"ext4 on many":      {&csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(mountCap(mnmw, ""))}, provisioner.ErrInvalid, "volumeMode Block"},
		"negative":          {&csispec.CreateVolumeRequest{Name: "v", CapacityRange: bytes(-1, 0), VolumeCapabilities: one}, provisioner.ErrInvalid, "negative"},
		"negative limit":    {&csispec.CreateVolumeRequest{Name: "v", CapacityRange: bytes(0, -1), VolumeCapabilities: one}, provisioner.ErrInvalid, "negative"},
		"above the limit":   {&csispec.CreateVolumeRequest{Name: "v", CapacityRange: bytes(9, 8), VolumeCapabilities: one}, provisioner.ErrOutOfRange, "limit of 8"},
		"clone":             {&csispec.CreateVolumeRequest{Name: "v", VolumeContentSource: &csispec.VolumeContentSource{}, VolumeCapabilities: one}, provisioner.ErrInvalid, "dataSource"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &platform{volume: provisioner.Volume{CapacityBytes: 1}}
			_, err := New(Options{Platform: provisioner.Platform{Volumes: p}}).CreateVolume(t.Context(), tc.req)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("error %v, want %v with %q", err, tc.want, tc.words)
			}
			if len(p.calls) != 0 {
				t.Errorf("the platform was called: %v", p.calls)
			}
		})
	}
	_, err := New(Options{Platform: provisioner.Platform{Volumes: &platform{}}}).CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: one})
	if err == nil || !strings.Contains(err.Error(), "no capacity") {
		t.Errorf("a volume without capacity: %v", err)
	}
}

func TestErrorsOfThePlatformKeepTheirKind(t *testing.T) {
	for _, want := range []error{provisioner.ErrExists, provisioner.ErrBusy, provisioner.ErrInUse, context.DeadlineExceeded} {
		p := &platform{err: fmt.Errorf("platform: %w", want)}
		s := New(Options{Platform: provisioner.Platform{Volumes: p, Attachments: p}})
		_, create := s.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: "v", VolumeCapabilities: caps(blockCap(snw))})
		_, remove := s.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v"})
		_, publish := s.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n", VolumeCapability: blockCap(snw)})
		_, unpublish := s.ControllerUnpublishVolume(t.Context(), &csispec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "n"})
		_, validate := s.ValidateVolumeCapabilities(t.Context(), &csispec.ValidateVolumeCapabilitiesRequest{VolumeId: "v", VolumeCapabilities: caps(blockCap(snw))})
		for call, err := range map[string]error{"create": create, "delete": remove, "publish": publish, "unpublish": unpublish, "validate": validate} {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), `"v"`) {
				t.Errorf("%s: error %v, want %v and the volume's name", call, err, want)
			}
		}
	}
}

func TestPublish(t *testing.T) {
	p := &platform{context: params{"nv-pciDeviceAddress": "0000:3b:00.2"}}
	s := New(Options{Platform: provisioner.Platform{Volumes: p, Attachments: p}})
	for name, tc := range map[string]struct {
		cap      *csispec.VolumeCapability
		readonly bool
		want     provisioner.AttachSpec
	}{
		"writer":           {blockCap(snw), false, provisioner.AttachSpec{AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}},
		"asked read-only":  {blockCap(snw), true, provisioner.AttachSpec{ReadOnly: true, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}},
		"reader's mode":    {mountCap(snro, ""), false, provisioner.AttachSpec{ReadOnly: true, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}},
		"readers anywhere": {mountCap(mnro, "xfs"), false, provisioner.AttachSpec{ReadOnly: true, AccessModes: []provisioner.AccessMode{provisioner.ReadOnlyMany}}},
		"one pod":          {mountCap(snsw, ""), false, provisioner.AttachSpec{AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOncePod}}},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := s.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{
				VolumeId: "v", NodeId: "n", VolumeCapability: tc.cap, Readonly: tc.readonly, VolumeContext: params{"k": "x"},
			})
			if err != nil {
				t.Fatal(err)
			}
			tc.want.VolumeID, tc.want.Node, tc.want.VolumeContext = "v", "n", params{"k": "x"}
			if d := cmp.Diff(tc.want, p.attach); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if resp.PublishContext["nv-pciDeviceAddress"] != "0000:3b:00.2" {
				t.Errorf("publish context %v", resp.PublishContext)
			}
		})
	}
	for name, req := range map[string]*csispec.ControllerPublishVolumeRequest{
		"no volume":      {NodeId: "n", VolumeCapability: blockCap(snw)},
		"no node":        {VolumeId: "v", VolumeCapability: blockCap(snw)},
		"no capability":  {VolumeId: "v", NodeId: "n"},
		"ext4 on many":   {VolumeId: "v", NodeId: "n", VolumeCapability: mountCap(mnmw, "")},
		"no such fsType": {VolumeId: "v", NodeId: "n", VolumeCapability: mountCap(snw, "zfs")},
	} {
		if _, err := s.ControllerPublishVolume(t.Context(), req); !errors.Is(err, provisioner.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestUnpublishAndDelete(t *testing.T) {
	p := &platform{}
	s := New(Options{Platform: provisioner.Platform{Volumes: p, Attachments: p}})
	for _, node := range []string{"n", ""} {
		if _, err := s.ControllerUnpublishVolume(t.Context(), &csispec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node}); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v"}); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{`detach v from "n"`, `detach v from ""`, "delete v"}, p.calls); d != "" {
		t.Error(d)
	}
	p.err = provisioner.ErrNotFound
	if _, err := s.ControllerUnpublishVolume(t.Context(), &csispec.ControllerUnpublishVolumeRequest{VolumeId: "v"}); err != nil {
		t.Errorf("unpublish of what is gone: %v", err)
	}
	_, err := s.ControllerUnpublishVolume(t.Context(), &csispec.ControllerUnpublishVolumeRequest{})
	if !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
	if _, err = s.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{}); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
}

func TestValidate(t *testing.T) {
	p := &platform{volume: provisioner.Volume{
		ID: "v", Mode: provisioner.Block,
		AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
		Parameters:  params{"policy": "p"}, Context: params{"storagePolicyName": "p"},
	}}
	one := caps(blockCap(snw))
	for name, tc := range map[string]struct {
		o     Options
		req   *csispec.ValidateVolumeCapabilitiesRequest
		words string
	}{
		"the same":        {Options{}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: one, Parameters: params{"policy": "p"}, VolumeContext: params{"storagePolicyName": "p", "storage.kubernetes.io/csiProvisionerIdentity": "x"}}, ""},
		"other mode":      {Options{}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: caps(mountCap(snw, ""))}, "mode Block, asked was Filesystem"},
		"fs over block":   {Options{BlockOnly: true}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: caps(mountCap(snw, ""))}, ""},
		"other access":    {Options{}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: caps(blockCap(mnmw))}, "asked was ReadWriteMany"},
		"unsupported":     {Options{}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: caps(blockCap(mnsw))}, "MULTI_NODE_SINGLE_WRITER"},
		"other parameter": {Options{}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: one, Parameters: params{"policy": "q"}}, `"policy" is "q"`},
		"bad parameter":   {Options{Normalize: noPolicy}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: one, Parameters: params{"x": "q"}}, "no parameter"},
		"other context":   {Options{}, &csispec.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: one, VolumeContext: params{"storagePolicyName": "q"}}, "volume context"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.req.VolumeId, tc.o.Volumes = "v", p
			resp, err := New(tc.o).ValidateVolumeCapabilities(t.Context(), tc.req)
			if err != nil {
				t.Fatal(err)
			}
			if (resp.Confirmed == nil) != (tc.words != "") || !strings.Contains(resp.Message, tc.words) {
				t.Errorf("answer %v, want words %q", resp, tc.words)
			}
		})
	}
	for _, req := range []*csispec.ValidateVolumeCapabilitiesRequest{{VolumeCapabilities: one}, {VolumeId: "v"}} {
		if _, err := New(Options{Platform: provisioner.Platform{Volumes: p}}).ValidateVolumeCapabilities(t.Context(), req); !errors.Is(err, provisioner.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", req, err)
		}
	}
}

// noPolicy is Options.Normalize of a platform that knows no parameter.
func noPolicy(map[string]string) (map[string]string, error) {
	return nil, csiserver.Invalid("the StorageClass has no parameter")
}

func TestCapabilitiesFollowTheFaces(t *testing.T) {
	p := &platform{}
	for _, tc := range []struct {
		s    *Server
		want int
	}{{New(Options{Platform: provisioner.Platform{Volumes: p}}), 2}, {New(Options{Platform: provisioner.Platform{Volumes: p, Attachments: p}}), 4}} {
		resp, err := tc.s.ControllerGetCapabilities(t.Context(), nil)
		if err != nil || len(resp.Capabilities) != tc.want {
			t.Errorf("%v, %v, want %d", resp, err, tc.want)
		}
	}
	s := New(Options{Platform: provisioner.Platform{Volumes: p}})
	if _, err := s.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{}); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Errorf("publish without attachments: %v", err)
	}
}

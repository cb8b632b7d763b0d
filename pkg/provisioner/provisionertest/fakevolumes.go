package provisionertest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// fakeDefaultBytes is the size of a volume made without one.
const fakeDefaultBytes = 1 << 30

type fakeVolumes struct{ f *Fake }

func (v fakeVolumes) Create(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	call := Call{Face: FaceVolumes, Verb: "Create", Object: spec.Name}
	return do(ctx, v.f, call, func() (provisioner.Volume, error) { return v.f.create(spec) })
}

func (f *Fake) create(spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	size, err := fakeSize(spec)
	if err != nil {
		return provisioner.Volume{}, err
	}
	for _, have := range f.volumes {
		if have.spec.Name == spec.Name {
			return sameVolume(have.volume, spec)
		}
	}
	f.made++
	v := provisioner.Volume{
		ID:            fmt.Sprintf("vol-%d", f.made),
		CapacityBytes: size,
		AccessModes:   slices.Clone(spec.AccessModes),
		Mode:          spec.Mode,
		Parameters:    maps.Clone(spec.Parameters),
	}
	v.Context = map[string]string{"fake/volume": v.ID}
	f.volumes[v.ID] = &fakeVolume{spec: spec, volume: v}
	return v, nil
}

func fakeSize(spec provisioner.VolumeSpec) (int64, error) {
	switch {
	case spec.Name == "":
		return 0, fmt.Errorf("volume has no name: %w", provisioner.ErrInvalid)
	case len(spec.AccessModes) == 0:
		return 0, fmt.Errorf("volume has no access modes: %w", provisioner.ErrInvalid)
	case spec.Mode != provisioner.Block && spec.Mode != provisioner.Filesystem:
		return 0, fmt.Errorf("volume mode %q: %w", spec.Mode, provisioner.ErrInvalid)
	case spec.CapacityBytes < 0 || spec.LimitBytes < 0:
		return 0, fmt.Errorf("negative size: %w", provisioner.ErrInvalid)
	case spec.LimitBytes > 0 && spec.LimitBytes < spec.CapacityBytes:
		return 0, fmt.Errorf("limit below size: %w", provisioner.ErrInvalid)
	case spec.CapacityBytes > 0:
		return spec.CapacityBytes, nil
	case spec.LimitBytes > 0:
		return min(spec.LimitBytes, fakeDefaultBytes), nil
	}
	return fakeDefaultBytes, nil
}

// sameVolume returns have if it satisfies spec, else ErrExists.
func sameVolume(have provisioner.Volume, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	fits := have.CapacityBytes >= spec.CapacityBytes &&
		(spec.LimitBytes == 0 || have.CapacityBytes <= spec.LimitBytes)
	if !fits || have.Mode != spec.Mode || !slices.Equal(have.AccessModes, spec.AccessModes) ||
		!maps.Equal(have.Parameters, spec.Parameters) {
		return provisioner.Volume{}, fmt.Errorf("volume %s: %w", spec.Name, provisioner.ErrExists)
	}
	return have, nil
}

func (v fakeVolumes) Delete(ctx context.Context, id string) error {
	call := Call{Face: FaceVolumes, Verb: "Delete", Object: id}
	_, err := do(ctx, v.f, call, func() (struct{}, error) {
		if len(v.f.attachments[id]) > 0 {
			return struct{}{}, fmt.Errorf("volume is attached: %w", provisioner.ErrInUse)
		}
		delete(v.f.volumes, id)
		return struct{}{}, nil
	})
	return err
}

func (v fakeVolumes) Get(ctx context.Context, id string) (provisioner.Volume, error) {
	call := Call{Face: FaceVolumes, Verb: "Get", Object: id}
	return do(ctx, v.f, call, func() (provisioner.Volume, error) {
		if have, ok := v.f.volumes[id]; ok {
			return have.volume, nil
		}
		return provisioner.Volume{}, provisioner.ErrNotFound
	})
}

type fakeAttachments struct{ f *Fake }

func (a fakeAttachments) Attach(ctx context.Context, spec provisioner.AttachSpec) (provisioner.Attachment, error) {
	call := Call{Face: FaceAttachments, Verb: "Attach", Object: spec.VolumeID + "/" + spec.Node}
	return do(ctx, a.f, call, func() (provisioner.Attachment, error) { return a.f.attach(spec) })
}

func (f *Fake) attach(spec provisioner.AttachSpec) (provisioner.Attachment, error) {
	none := provisioner.Attachment{}
	if spec.VolumeID == "" || spec.Node == "" {
		return none, fmt.Errorf("volume or node is empty: %w", provisioner.ErrInvalid)
	}
	v, ok := f.volumes[spec.VolumeID]
	if !ok || !f.nodes[spec.Node] {
		return none, fmt.Errorf("volume or node: %w", provisioner.ErrNotFound)
	}
	held := f.attachments[spec.VolumeID]
	if have, ok := held[spec.Node]; ok {
		if have.ReadOnly != spec.ReadOnly {
			return none, fmt.Errorf("attached with readOnly=%t: %w", have.ReadOnly, provisioner.ErrExists)
		}
	} else if len(held) > 0 && provisioner.SingleNode(v.volume.AccessModes) {
		return none, fmt.Errorf("volume is held by another node: %w", provisioner.ErrInUse)
	}
	if held == nil {
		held = map[string]provisioner.AttachSpec{}
		f.attachments[spec.VolumeID] = held
	}
	held[spec.Node] = spec
	return provisioner.Attachment{PublishContext: map[string]string{"fake/node": spec.Node}}, nil
}

func (a fakeAttachments) Detach(ctx context.Context, volumeID, node string) error {
	call := Call{Face: FaceAttachments, Verb: "Detach", Object: volumeID + "/" + node}
	_, err := do(ctx, a.f, call, func() (struct{}, error) {
		if node == "" {
			delete(a.f.attachments, volumeID)
		} else {
			delete(a.f.attachments[volumeID], node)
		}
		return struct{}{}, nil
	})
	return err
}

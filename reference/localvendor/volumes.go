package localvendor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/places"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Create makes the image and then the record of a volume, which is what makes
// it exist. See provisioner.Volumes.
func (s *Storage) Create(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	return s.createEmpty(ctx, spec, false)
}

// CreateEphemeral is Create for a volume that goes with its pod.
func (s *Storage) CreateEphemeral(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	return s.createEmpty(ctx, spec, true)
}

func (s *Storage) createEmpty(ctx context.Context, spec provisioner.VolumeSpec, ephemeral bool) (provisioner.Volume, error) {
	want, err := s.parse(spec)
	if err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %q: %w", spec.Name, err)
	}
	want.Ephemeral = ephemeral
	id := records.ID(spec.Name)
	v, err := s.create(ctx, id, spec, want, func(ctx context.Context) (records.Volume, error) {
		var err error
		if want.Place, err = s.places.Choose(spec.AccessibleFrom); err != nil {
			return records.Volume{}, err
		}
		if want.Shared() {
			return want, s.makeDirectory(id)
		}
		return want, s.makeImage(id, want, func(*os.File) error { return ctx.Err() })
	})
	if err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %s: %w", id, err)
	}
	return v, nil
}

// create makes a volume with build, which makes its image and returns its
// record, unless it is there.
func (s *Storage) create(ctx context.Context, id string, spec provisioner.VolumeSpec, want records.Volume, build func(context.Context) (records.Volume, error)) (provisioner.Volume, error) {
	unlock, err := s.lock(id)
	if err != nil {
		return provisioner.Volume{}, err
	}
	defer unlock()
	have, found, err := s.load(id)
	if err != nil {
		return provisioner.Volume{}, err
	}
	if found {
		if why := differs(have, spec, want); why != "" {
			return provisioner.Volume{}, fmt.Errorf("it exists with %s: %w", why, provisioner.ErrExists)
		}
		return have.Volume(id), nil
	}
	if err := ctx.Err(); err != nil {
		return provisioner.Volume{}, err
	}
	made, err := build(ctx)
	if err != nil {
		return provisioner.Volume{}, err
	}
	if err := s.save(id, made); err != nil {
		return provisioner.Volume{}, err
	}
	return made.Volume(id), nil
}

// parse checks a request and returns the record that would fulfill it.
func (s *Storage) parse(spec provisioner.VolumeSpec) (records.Volume, error) {
	invalid := func(format string, args ...any) (records.Volume, error) {
		return records.Volume{}, fmt.Errorf(format+": %w", append(args, provisioner.ErrInvalid)...)
	}
	switch {
	case spec.Name == "":
		return invalid("it has no name")
	case len(spec.AccessModes) == 0:
		return invalid("it has no access modes")
	case spec.Mode != provisioner.Block && spec.Mode != provisioner.Filesystem:
		return invalid("volume mode %q is not Block or Filesystem", spec.Mode)
	}
	if err := s.checkParameters(spec); err != nil {
		return records.Volume{}, err
	}
	provisioning := records.Thin
	if p, ok := spec.Parameters[records.ParameterProvisioning]; ok {
		provisioning = p
	}
	if provisioning != records.Thin && provisioning != records.Thick {
		return invalid("parameter %s is %q: use %s or %s", records.ParameterProvisioning, provisioning, records.Thin, records.Thick)
	}
	size, err := sizeOf(spec.CapacityBytes, spec.LimitBytes, s.maxBytes)
	if err != nil {
		return records.Volume{}, err
	}
	fsType := ""
	if spec.Mode == provisioner.Filesystem {
		fsType = s.fsType
		size = max(size, hostdev.LeastBytes(fsType)) // a smaller one could be made, and never mounted
		if spec.LimitBytes > 0 && size > spec.LimitBytes {
			return records.Volume{}, fmt.Errorf("%s needs %d bytes, more than the limit of %d: %w", fsType, size, spec.LimitBytes, provisioner.ErrOutOfRange)
		}
	}
	bounds, err := s.limitsOf(records.Limits{}, spec.Mutable)
	if err != nil {
		return records.Volume{}, err
	}
	out := records.Volume{
		Name: spec.Name, CapacityBytes: size, AccessModes: slices.Clone(spec.AccessModes),
		Mode: spec.Mode, Provisioning: provisioning, Parameters: maps.Clone(spec.Parameters),
		Limits: bounds, FSType: fsType,
	}
	return out, checkDirectory(out)
}

// checkParameters refuses those of a StorageClass that are not known, or mean
// another sort of volume.
func (s *Storage) checkParameters(spec provisioner.VolumeSpec) error {
	known := map[string]string{records.ParameterProvisioning: "thin or thick"}
	if s.fsType != "" {
		known[records.ParameterKind] = "device or directory"
	}
	for key := range spec.Parameters {
		if known[key] == "" {
			return fmt.Errorf("unknown parameter %q: known are %v: %w", key, known, provisioner.ErrInvalid)
		}
	}
	kind, has := spec.Parameters[records.ParameterKind]
	want := map[provisioner.VolumeMode]string{provisioner.Block: records.KindDevice, provisioner.Filesystem: records.KindDirectory}[spec.Mode]
	if has && kind != want {
		return fmt.Errorf("parameter %s is %q, and a volume of mode %s is a %s: %w", records.ParameterKind, kind, spec.Mode, want, provisioner.ErrInvalid)
	}
	return nil
}

// sizeOf chooses the size of a volume in bytes: the least one asked for,
// rounded up to Granularity.
func sizeOf(want, limit, largest int64) (int64, error) {
	if want < 0 || limit < 0 || (limit > 0 && limit < want) {
		return 0, fmt.Errorf("size %d with limit %d bytes makes no sense: %w", want, limit, provisioner.ErrInvalid)
	}
	if want > largest {
		return 0, fmt.Errorf("size %d bytes is above the largest, %d: %w", want, largest, provisioner.ErrOutOfRange)
	}
	size := want
	if size == 0 {
		size = min(DefaultBytes, largest)
		if limit > 0 {
			size = min(size, limit/Granularity*Granularity)
		}
	}
	size = max((size+Granularity-1)/Granularity*Granularity, Granularity)
	if limit > 0 && size > limit {
		return 0, fmt.Errorf("sizes are multiples of %d bytes and the limit %d is below the next, %d: %w",
			Granularity, limit, size, provisioner.ErrOutOfRange)
	}
	return size, nil
}

// differs says which property of the volume is not the one wanted.
func differs(have records.Volume, spec provisioner.VolumeSpec, want records.Volume) string {
	switch {
	case have.Name != spec.Name:
		return fmt.Sprintf("the name %q", have.Name)
	case have.CapacityBytes < spec.CapacityBytes, spec.LimitBytes > 0 && have.CapacityBytes > spec.LimitBytes:
		return fmt.Sprintf("a size of %d bytes", have.CapacityBytes)
	case have.Mode != want.Mode:
		return fmt.Sprintf("volume mode %s", have.Mode)
	case have.FSType != want.FSType:
		return fmt.Sprintf("file system %q", have.FSType)
	case have.Ephemeral != want.Ephemeral:
		return fmt.Sprintf("ephemeral=%t", have.Ephemeral)
	case !sameModes(have.AccessModes, want.AccessModes):
		return fmt.Sprintf("access modes %v", have.AccessModes)
	case have.Provisioning != want.Provisioning:
		return fmt.Sprintf("%s provisioning", have.Provisioning)
	case sourceOf(have) != sourceOf(want):
		return fmt.Sprintf("the source %+v", sourceOf(have))
	case !places.Serves(have.Place, spec.AccessibleFrom):
		return fmt.Sprintf("its storage where %v, which is none of the places asked for", have.Place)
	}
	return ""
}

func sourceOf(r records.Volume) records.Source {
	if r.Source == nil {
		return records.Source{}
	}
	return *r.Source
}

// sameModes compares as sets.
func sameModes(a, b []provisioner.AccessMode) bool {
	a, b = slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b)))
	return slices.Equal(a, b)
}

// makeImage makes the image anew, of what fill writes: without a record,
// one that an interrupted call may have left was never given to a user.
func (s *Storage) makeImage(id string, want records.Volume, fill func(*os.File) error) error {
	total, free, err := s.space()
	if err != nil {
		return err
	}
	room := total
	if want.Provisioning == records.Thick {
		room = free
	}
	if want.CapacityBytes > room {
		return fmt.Errorf("%s needs %d bytes and %s has room for %d: %w",
			want.Provisioning, want.CapacityBytes, s.dir, room, provisioner.ErrExhausted)
	}
	err = files.Write(s.imagePath(id), func(f *os.File) error {
		if err := fill(f); err != nil {
			return err
		}
		if want.Provisioning == records.Thick {
			return unix.Fallocate(int(f.Fd()), 0, 0, want.CapacityBytes)
		}
		return f.Truncate(want.CapacityBytes)
	})
	switch {
	case noRoom(err):
		return fmt.Errorf("make its image (%v): %w", err, provisioner.ErrExhausted)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the file system of %s cannot reserve room, use %s=%s: %w",
			s.dir, records.ParameterProvisioning, records.Thin, provisioner.ErrUnsupported)
	case err != nil:
		return fmt.Errorf("make its image: %w", err)
	}
	return nil
}

func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Delete removes the record and then the image, so that what is half removed
// does not exist. See provisioner.Volumes.
func (s *Storage) Delete(ctx context.Context, id string) error {
	if !records.Valid(id) {
		return nil
	}
	if err := s.delete(ctx, id); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	return nil
}

func (s *Storage) delete(ctx context.Context, id string) error {
	unlock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer unlock()
	have, found, err := s.load(id)
	if err != nil {
		return err
	}
	if found && len(have.Attachments) > 0 {
		return fmt.Errorf("node %s has it, detach it first: %w",
			strings.Join(slices.Sorted(maps.Keys(have.Attachments)), ", "), provisioner.ErrInUse)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, path := range []string{s.recordPath(id), s.imagePath(id)} {
		if err := files.Remove(path); err != nil {
			return err
		}
	}
	for _, path := range []string{s.directoryPath(id), filepath.Join(s.dir, id+records.UsersSuffix)} {
		if err := removeTree(path); err != nil {
			return err
		}
	}
	return files.SyncDir(s.dir)
}

// Get returns the volume, or ErrNotFound. See provisioner.Volumes.
func (s *Storage) Get(_ context.Context, id string) (provisioner.Volume, error) {
	have, found, err := s.load(id)
	if err != nil {
		return provisioner.Volume{}, err
	}
	if !found {
		return provisioner.Volume{}, fmt.Errorf("volume %q: %w", id, provisioner.ErrNotFound)
	}
	return have.Volume(id), nil
}

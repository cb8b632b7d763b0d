package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/bench/results"
)

// copied is how much the volume holds of which copies are made, in bytes.
const copied = 1 << 30

// copies measures snapshots and clones of a volume that is full.
func (b *bench) copies(ctx context.Context) error {
	source, err := b.full(ctx)
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		name string
		copy func(context.Context, volume) (remove func() error, err error)
	}{{"snapshot.1gib", b.snapshot}, {"clone.1gib", b.clone}} {
		if !b.options.wants(kind.name) {
			continue
		}
		took := b.series(kind.name, results.Millis, results.Median)
		for i := range 1 + b.options.times(7) {
			begin := time.Now()
			remove, err := kind.copy(ctx, source)
			if err != nil {
				return err
			}
			if i > 0 {
				took.add(millis(time.Since(begin)))
			}
			if err := remove(); err != nil {
				return err
			}
		}
	}
	return nil
}

// full makes a volume of 1 GiB and writes all of it, through a host.
func (b *bench) full(ctx context.Context) (volume, error) {
	volumes, err := b.create(ctx, 1, wish{bytes: copied})
	if err != nil {
		return volume{}, err
	}
	v := volumes[0]
	dev, err := b.attach(ctx, v, 0)
	if err != nil {
		return v, err
	}
	if err := fillDevice(ctx, dev.block.Path, copied); err != nil {
		return v, fmt.Errorf("fill volume %s: %w", v.id, err)
	}
	return v, b.detach(ctx, v, 0)
}

// fillDevice writes n bytes, no two blocks of which are alike.
func fillDevice(ctx context.Context, path string, n int64) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return fmt.Errorf("open the device to write to it: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	block := aligned(1 << 20)
	noise := rand.NewChaCha8([32]byte{})
	for at := int64(0); at < n; at += int64(len(block)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, _ = noise.Read(block)
		if _, err := file.WriteAt(block, at); err != nil {
			return fmt.Errorf("write at byte %d: %w", at, err)
		}
	}
	return file.Sync()
}

// snapshot makes one from which volumes can be made.
func (b *bench) snapshot(ctx context.Context, v volume) (remove func() error, err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := fmt.Sprintf("%s%d", prefix, time.Now().UnixNano())
	answer, err := b.driver.CreateSnapshot(waiting, &csispec.CreateSnapshotRequest{Name: name, SourceVolumeId: v.id})
	if err != nil {
		return nil, fmt.Errorf("make snapshot %s of %s: %w", name, v.id, err)
	}
	made := answer.GetSnapshot()
	if !made.GetReadyToUse() {
		return nil, fmt.Errorf("make snapshot %s of %s: it is not ready after all the time the driver takes", name, v.id)
	}
	return func() error {
		_, err := b.driver.DeleteSnapshot(ctx, &csispec.DeleteSnapshotRequest{SnapshotId: made.GetSnapshotId()})
		return err
	}, nil
}

// clone makes one that can be attached.
func (b *bench) clone(ctx context.Context, v volume) (remove func() error, err error) {
	from := &csispec.VolumeContentSource_VolumeSource{VolumeId: v.id}
	made, err := b.create(ctx, 1, wish{bytes: copied, source: &csispec.VolumeContentSource{
		Type: &csispec.VolumeContentSource_Volume{Volume: from},
	}})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := b.driver.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: made[0].id})
		return err
	}, nil
}

package dpu

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// fakeVendor is a vendor's plugin whose devices are null bdevs of the emulated
// service, so that they are lost when that restarts.
type fakeVendor struct {
	rpc *snaprpc.Client
	can vendorplugin.Capabilities
	// dir is the directory of every volume of mode Filesystem.
	dir string

	mu sync.Mutex
	// suffix of the names of devices made from now on.
	suffix string
	// fail holds an error for the next call of a verb; "verb after" loses
	// the answer instead.
	fail      map[string]error
	opened    []provisioner.OpenSpec
	suspected int
	// mib is what volumes have grown to, in MiB; 0 is not at all.
	mib int
	// epochs are those under which devices are open.
	epochs map[string]int64
	// noEpochs: its devices are of a kind that takes none.
	noEpochs bool
	// hang, if set, is what GetDevice does.
	hang func(context.Context) error
	// onOpen, if set, is what OpenAtEpoch does.
	onOpen func() error
}

func (v *fakeVendor) do(verb string, act func() error) error {
	v.mu.Lock()
	before, after := v.fail[verb], v.fail[verb+" after"]
	delete(v.fail, verb)
	delete(v.fail, verb+" after")
	v.mu.Unlock()
	if before != nil {
		return before
	}
	if err := act(); err != nil {
		return err
	}
	return after
}

// pending reports whether a fault has not struck yet.
func (v *fakeVendor) pending(verb string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fail[verb] != nil
}

func (v *fakeVendor) Info(context.Context) (vendorplugin.Info, error) {
	return vendorplugin.Info{Name: "local"}, v.do("Info", func() error { return nil })
}

func (v *fakeVendor) Probe(context.Context) error { return v.do("Probe", func() error { return nil }) }

func (v *fakeVendor) Capabilities(context.Context) (vendorplugin.Capabilities, error) {
	return v.can, v.do("Capabilities", func() error { return nil })
}

func (v *fakeVendor) Provider(context.Context) (string, error) {
	return "nvidia", v.do("Provider", func() error { return nil })
}

func (v *fakeVendor) Epochs(context.Context) (bool, error) {
	return v.can.Epochs, v.do("Epochs", func() error { return nil })
}

// OpenAtEpoch opens a device that SNAP has under an epoch; one that SNAP lost has none.
func (v *fakeVendor) OpenAtEpoch(ctx context.Context, _, device string, epoch int64) error {
	return v.do("OpenAtEpoch", func() error {
		if v.noEpochs {
			return provisioner.ErrUnsupported
		}
		if v.onOpen != nil {
			return v.onOpen()
		}
		if _, err := v.rpc.BdevGetBdevs(ctx, device); err != nil {
			return fmt.Errorf("%w: %w", provisioner.ErrNotFound, err)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.epochs == nil {
			v.epochs = map[string]int64{}
		}
		if epoch < v.epochs[device] {
			return fmt.Errorf("device %s is at epoch %d: %w", device, v.epochs[device], provisioner.ErrPrecondition)
		}
		v.epochs[device] = epoch
		return nil
	})
}

func (v *fakeVendor) CreateDevice(ctx context.Context, spec provisioner.OpenSpec) (string, error) {
	name := "dev_" + spec.VolumeID + v.suffix
	err := v.do("CreateDevice", func() error {
		v.mu.Lock()
		v.opened = append(v.opened, spec)
		v.mu.Unlock()
		if spec.Mode == provisioner.Filesystem {
			// Every refusal has one code: what counts is that it is there.
			_ = v.rpc.FsdevAioCreate(ctx, name, v.dir)
			return nil
		}
		err := v.rpc.Call(ctx, "bdev_null_create", map[string]any{"name": name, "num_blocks": 64, "block_size": 512}, nil)
		if err != nil && !snaprpc.IsExists(err) {
			return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
		}
		return v.resize(ctx, name)
	})
	return name, err
}

// resize gives a device the size that its volume has now, if that has grown.
func (v *fakeVendor) resize(ctx context.Context, device string) error {
	if v.mib == 0 {
		return nil
	}
	return v.rpc.Call(ctx, "bdev_null_resize", map[string]any{"name": device, "new_size": v.mib}, nil)
}

func (v *fakeVendor) DeleteDevice(ctx context.Context, _, device string) error {
	return v.do("DeleteDevice", func() error {
		if v.dir != "" {
			return v.rpc.FsdevAioDelete(ctx, device)
		}
		err := v.rpc.Call(ctx, "bdev_null_delete", map[string]any{"name": device}, nil)
		if err != nil && !snaprpc.IsNotFound(err) {
			return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
		}
		return nil
	})
}

func (v *fakeVendor) GetDevice(ctx context.Context, volumeID, device string) (provisioner.Device, error) {
	err := v.do("GetDevice", func() error {
		if v.hang != nil {
			return v.hang(ctx)
		}
		if v.dir != "" {
			return v.hasFS(ctx, device)
		}
		_, err := v.rpc.BdevGetBdevs(ctx, device)
		switch {
		case snaprpc.IsNotFound(err):
			return provisioner.ErrNotFound
		case err != nil:
			return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
		}
		return nil
	})
	return provisioner.Device{VolumeID: volumeID, Name: device}, err
}

func (v *fakeVendor) ListDevices(ctx context.Context) ([]provisioner.Device, error) {
	var out []provisioner.Device
	err := v.do("ListDevices", func() error {
		all, err := v.rpc.BdevGetBdevs(ctx, "")
		if err != nil {
			return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
		}
		for _, b := range all {
			if id, ok := strings.CutPrefix(strings.TrimSuffix(b.Name, v.suffix), "dev_"); ok {
				out = append(out, provisioner.Device{VolumeID: id, Name: b.Name})
			}
		}
		return nil
	})
	return out, err
}

func (v *fakeVendor) hasFS(ctx context.Context, device string) error {
	all, err := v.rpc.FsdevGetFsdevs(ctx)
	for _, d := range all {
		if d.Name == device {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return provisioner.ErrNotFound
}

package share

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/loopdev"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/fusepath"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// Client is one on a DPU.
type Client struct {
	// Address of the storage, "host:port".
	Address string
	// Volume, the DPU, and the name by which the storage knows the client.
	Volume, Node, Name string
}

// label begins the names of the devices of a volume on a DPU, of which there is one kernel on the bed.
func (c Client) label() string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s@%s", c.Volume, c.Node) // never fails, hash.Hash
	return fmt.Sprintf("share-%016x", h.Sum64())
}

// Show makes a block device of the volume at path, beside its data path in dir, and then the file ready; it
// serves the device until ctx ends. The device stays until Hide, as that of a process that was killed does.
func (c Client) Show(ctx context.Context, dir, path, ready string, log logr.Logger) error {
	d, err := blocktarget.OpenDevice(ctx, blocktarget.DeviceOptions{
		Address: c.Address, Export: blocktarget.Export{Volume: c.Volume, Node: c.Node, Token: c.Name}.String(), Log: log,
	})
	if err != nil {
		return fmt.Errorf("open volume %s: %w", c.Volume, err)
	}
	defer func() { _ = d.Close() }()
	fuse, err := fusepath.Open(c.label(), dir, log)
	if err != nil {
		return err
	}
	shown, err := fuse.Attach(ctx, datapath.Target{Name: "v", Size: d.Size(), Backing: d})
	if err == nil {
		err = shown.Node(path)
	}
	if err == nil {
		err = os.WriteFile(ready, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("show volume %s at %s: %w", c.Volume, path, err)
	}
	<-ctx.Done()
	return nil
}

// Hide gives back the devices that Show has made of the volume on this DPU.
func (c Client) Hide() error { return loopdev.DetachAll(layout.EmulatorFilePrefix + c.label() + ".") }

package zerotrust

import "github.com/moor-storage/moor/internal/hostdev"

// Shown is a device that the DPU shows: an NVMe namespace, or a file system.
type Shown struct {
	// Block is the namespace; of a file system it has Name and Address alone.
	hostdev.Block
	// Tag is what a file system is mounted by, and its Name; empty for a
	// namespace.
	Tag string `json:",omitempty"`
}

// Devices lists what the DPU shows, namespaces first. A kernel older than Linux
// 6.9 tells of no file systems.
func Devices(f *hostdev.Finder) ([]Shown, error) {
	blocks, err := f.List()
	if err != nil {
		return nil, err
	}
	shares, err := f.Shares()
	if err != nil {
		return nil, err
	}
	var out []Shown
	for _, b := range blocks {
		out = append(out, Shown{Block: b})
	}
	for _, s := range shares {
		out = append(out, Shown{Block: hostdev.Block{Name: s.Tag, Address: s.Address}, Tag: s.Tag})
	}
	return out, nil
}

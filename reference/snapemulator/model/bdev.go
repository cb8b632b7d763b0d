package model

import (
	"slices"
	"syscall"

	"github.com/google/uuid"
)

// The products that a bdev can be, as SPDK calls them.
const (
	AIO    = "AIO disk"
	Malloc = "Malloc disk"
	Null   = "Null disk"
	NVMe   = "NVMe disk"
	// MoorTarget is the emulator's own, none of SPDK's.
	MoorTarget = "Moor target disk"
)

// CreateBdev adds b. EINVAL for a bad name, size or identity, EEXIST if the
// name is taken. An empty UUID is filled in.
func (m *Model) CreateBdev(b Bdev) error {
	switch {
	case b.Name == "" || len(b.Name) > 200:
		return Refuse(syscall.EINVAL, "a bdev's name has 1 to 200 bytes, not %d", len(b.Name))
	case b.BlockSize < 512 || b.BlockSize > 1<<20 || b.BlockSize&(b.BlockSize-1) != 0:
		return Refuse(syscall.EINVAL, "block size %d is not a power of two from 512", b.BlockSize)
	case b.NumBlocks <= 0 || b.NumBlocks > (1<<62)/b.BlockSize:
		return Refuse(syscall.EINVAL, "%d blocks of %d bytes", b.NumBlocks, b.BlockSize)
	case b.UUID != "" && uuid.Validate(b.UUID) != nil:
		return Refuse(syscall.EINVAL, "uuid %q", b.UUID)
	case m.Bdev(b.Name) != nil:
		return Refuse(syscall.EEXIST, "bdev %s", b.Name)
	}
	if b.UUID == "" {
		b.UUID = m.newUUID()
	}
	m.Bdevs = append(m.Bdevs, &b)
	return nil
}

// DeleteBdev removes a bdev made as product. ENODEV if there is none, EBUSY
// while a namespace claims it.
func (m *Model) DeleteBdev(name, product string) error {
	b := m.Bdev(name)
	if b == nil || b.Product != product {
		return Refuse(syscall.ENODEV, "bdev %s", name)
	}
	if b.Claim != nil {
		return Refuse(syscall.EBUSY, "bdev %s is claimed by namespace %d of %s", name, b.Claim.NSID, b.Claim.Subsystem.NQN)
	}
	m.Bdevs = slices.DeleteFunc(m.Bdevs, func(x *Bdev) bool { return x == b })
	return nil
}

// GrowBdev gives a bdev made as product another size in bytes, in whole blocks.
// ENODEV if there is none, EBUSY if it would shrink while a namespace claims it.
func (m *Model) GrowBdev(name, product string, bytes int64) error {
	b := m.Bdev(name)
	if b == nil || b.Product != product {
		return Refuse(syscall.ENODEV, "bdev %s", name)
	}
	blocks := bytes / b.BlockSize
	switch {
	case blocks <= 0:
		return Refuse(syscall.EINVAL, "bdev %s would have no block", name)
	case blocks < b.NumBlocks && b.Claim != nil:
		return Refuse(syscall.EBUSY, "bdev %s has %d blocks and would have %d, and namespace %d of %s claims it", name, b.NumBlocks, blocks, b.Claim.NSID, b.Claim.Subsystem.NQN)
	}
	b.NumBlocks = blocks
	return nil
}

// Bdev returns the bdev called name, or nil.
func (m *Model) Bdev(name string) *Bdev {
	for _, b := range m.Bdevs {
		if b.Name == name {
			return b
		}
	}
	return nil
}

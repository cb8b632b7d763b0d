package dmcrypt

import (
	"crypto/aes"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/crypto/xts"
)

// ivUnit is what the tweaks of plain64 count, in bytes, for sectors of any size: LUKS2
// does not ask dm-crypt for iv_large_sectors.
const ivUnit = 512

// area says which part of a device is encrypted: what is from an offset on, in sectors
// of a size, both in bytes.
type area struct{ offset, sector int64 }

// volume is what is encrypted in a device, from an offset to its end.
type volume struct {
	device *os.File
	area
	size   int64
	cipher *xts.Cipher

	// A write of part of a sector reads the rest of it first.
	mu sync.RWMutex
}

// openVolume opens the device at path; key is LUKS' volume key of 32 or 64 bytes.
func openVolume(path string, key []byte, a area) (*volume, error) {
	cipher, err := xts.NewCipher(aes.NewCipher, key)
	if err != nil {
		return nil, fmt.Errorf("use the volume key: %w", err)
	}
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the encrypted device: %w", err)
	}
	end, err := device.Seek(0, io.SeekEnd)
	if err == nil && (a.sector < ivUnit || a.sector%ivUnit != 0 || a.offset < 0 || a.offset >= end || (end-a.offset)%a.sector != 0) {
		err = fmt.Errorf("%d bytes from offset %d on are no whole sectors of %d", end, a.offset, a.sector)
	}
	if err != nil {
		_ = device.Close()
		return nil, fmt.Errorf("find the data of %s: %w", path, err)
	}
	return &volume{device: device, area: a, size: end - a.offset, cipher: cipher}, nil
}

func (v *volume) close() error { return v.device.Close() }

func (v *volume) sync() error { return v.device.Sync() }

// readAt reads plain text: as much of p as there is before the end.
func (v *volume) readAt(p []byte, at int64) (int, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n := int(max(0, min(int64(len(p)), v.size-at)))
	if n == 0 {
		return 0, nil
	}
	sectors, first, err := v.decrypt(at, n)
	if err != nil {
		return 0, err
	}
	return copy(p[:n], sectors[at-first:]), nil
}

// writeAt writes plain text, all of it or nothing beyond the end.
func (v *volume) writeAt(p []byte, at int64) error {
	if at < 0 || at+int64(len(p)) > v.size {
		return fmt.Errorf("%d bytes at %d are beyond the end at %d", len(p), at, v.size)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	sectors, first, err := v.decrypt(at, len(p))
	if err != nil {
		return err
	}
	copy(sectors[at-first:], p)
	v.each(sectors, first, v.cipher.Encrypt)
	_, err = v.device.WriteAt(sectors, v.offset+first)
	return err
}

// decrypt reads the whole sectors that have n bytes at an offset, which begin at first.
func (v *volume) decrypt(at int64, n int) (sectors []byte, first int64, err error) {
	first = at / v.sector * v.sector
	end := (at + int64(n) + v.sector - 1) / v.sector * v.sector
	sectors = make([]byte, end-first)
	if _, err := v.device.ReadAt(sectors, v.offset+first); err != nil {
		return nil, 0, err
	}
	v.each(sectors, first, v.cipher.Decrypt)
	return sectors, first, nil
}

// each changes sectors in place; the first of them is at an offset.
func (v *volume) each(sectors []byte, first int64, change func(to, from []byte, tweak uint64)) {
	for i := int64(0); i < int64(len(sectors)); i += v.sector {
		sector := sectors[i : i+v.sector]
		change(sector, sector, uint64(first+i)/ivUnit)
	}
}

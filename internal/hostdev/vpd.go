package hostdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Tags of Vital Product Data: PCI Local Bus 3.0, appendix I. The kernel takes
// these and no others (drivers/pci/vpd.c, pci_vpd_size).
const (
	vpdName     = 0x82
	vpdReadOnly = 0x90
	vpdWritable = 0x91
	vpdEnd      = 0x78
)

// vpdBytes is the greatest size of VPD: its address register has 15 bits.
const vpdBytes = 1 << 15

// vuidKeyword is where an emulated function's Vital Product Data has its VUID, as
// DPF reads it.
const vuidKeyword = "VU"

// errVPD says that what was read is no Vital Product Data.
var errVPD = errors.New("no vital product data")

// vpdVUID returns what a function's Vital Product Data has for vuidKeyword,
// without padding; "" if it does not have it. Of several the first counts, and the
// part that only the maker writes comes first. It reads no more than it has to: each
// 4 bytes are a request to the device.
func vpdVUID(r io.ReaderAt) (string, error) {
	for at := int64(0); at < vpdBytes; {
		var head [3]byte
		if _, err := r.ReadAt(head[:1], at); err != nil {
			return "", fmt.Errorf("read tag at %d: %w", at, err)
		}
		if head[0] == vpdEnd {
			return "", nil
		}
		if head[0] != vpdName && head[0] != vpdReadOnly && head[0] != vpdWritable {
			return "", fmt.Errorf("tag %#x at %d: %w", head[0], at, errVPD)
		}
		if _, err := r.ReadAt(head[1:], at+1); err != nil {
			return "", fmt.Errorf("read size at %d: %w", at, err)
		}
		size := int64(binary.LittleEndian.Uint16(head[1:]))
		at += int64(len(head))
		if head[0] != vpdName {
			value, err := vpdField(io.NewSectionReader(r, at, min(size, vpdBytes-at)))
			if value != "" || err != nil {
				return value, err
			}
		}
		at += size
	}
	return "", fmt.Errorf("it has no end: %w", errVPD)
}

// vpdField returns what a resource has for vuidKeyword: its fields are two letters,
// a byte with the size, and the value.
func vpdField(r *io.SectionReader) (string, error) {
	for at := int64(0); at < r.Size(); {
		var head [3]byte
		if _, err := r.ReadAt(head[:], at); err != nil {
			return "", fmt.Errorf("read field at %d: %w", at, errors.Join(errVPD, err))
		}
		at += int64(len(head))
		if string(head[:2]) == vuidKeyword {
			value := make([]byte, head[2])
			if _, err := r.ReadAt(value, at); err != nil && len(value) > 0 {
				return "", fmt.Errorf("read field %s: %w", vuidKeyword, errors.Join(errVPD, err))
			}
			return strings.TrimRight(string(value), " \x00"), nil
		}
		at += int64(head[2])
	}
	return "", nil
}

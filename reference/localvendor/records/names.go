package records

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	// devicePrefix begins the name of every bdev of the platform.
	devicePrefix = "aio_"
	// MaxDeviceName is the longest bdev name that is safe everywhere: SNAP
	// copies names into fields of 64 bytes.
	MaxDeviceName = 63
	// hashMark begins what stands for a name that cannot be used as it is;
	// no plain name begins with it, so the two never meet.
	hashMark = "_"
)

// plain are the names which are safe in a file name and in a bdev name.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// ID returns the ID of the volume called name: the name itself if it can be
// a file name, else a hash of it. Being a function of the name, it makes Create
// idempotent without an index.
func ID(name string) string { return Fit(name, 63) }

// Device returns the name of the bdev of a volume.
func Device(volumeID string) string {
	return devicePrefix + Fit(volumeID, MaxDeviceName-len(devicePrefix))
}

// VolumeOf is Device read backwards; ok is false if the device is not one of
// the platform, hashed is true if its volume cannot be told from its name.
func VolumeOf(device string) (volumeID string, hashed, ok bool) {
	rest, ok := strings.CutPrefix(device, devicePrefix)
	switch {
	case !ok || len(device) > MaxDeviceName:
		return "", false, false
	case strings.HasPrefix(rest, hashMark):
		return "", true, true
	case plain.MatchString(rest):
		return rest, false, true
	}
	return "", false, false
}

// Fit returns s if it is plain and not longer than limit bytes, else its hash:
// 128 bits are beyond any chance of two volumes meeting.
func Fit(s string, limit int) string {
	if len(s) <= limit && plain.MatchString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashMark + hex.EncodeToString(sum[:16])
}

// Valid reports whether id can be one that ID returned.
func Valid(id string) bool {
	return len(id) <= 63 && plain.MatchString(strings.TrimPrefix(id, hashMark))
}

// IDs returns the IDs of the records in a directory, in order; none if there
// is no directory.
func IDs(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, ".json"); ok && Valid(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

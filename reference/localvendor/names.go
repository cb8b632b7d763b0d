package localvendor

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

const (
	// devicePrefix begins the name of every bdev of the platform.
	devicePrefix = "aio_"
	// maxDeviceName is the longest bdev name that is safe everywhere: SNAP
	// copies names into fields of 64 bytes.
	maxDeviceName = 63
	// hashMark begins what stands for a name that cannot be used as it is;
	// no plain name begins with it, so the two never meet.
	hashMark = "_"
)

// plain are the names which are safe in a file name and in a bdev name.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// idOf returns the ID of the volume called name: the name itself if it can be
// a file name, else a hash of it. Being a function of the name, it makes Create
// idempotent without an index.
func idOf(name string) string { return fit(name, 63) }

// deviceOf returns the name of the bdev of a volume.
func deviceOf(volumeID string) string {
	return devicePrefix + fit(volumeID, maxDeviceName-len(devicePrefix))
}

// volumeOf is deviceOf read backwards; ok is false if the device is not one of
// the platform, hashed is true if its volume cannot be told from its name.
func volumeOf(device string) (volumeID string, hashed, ok bool) {
	rest, ok := strings.CutPrefix(device, devicePrefix)
	switch {
	case !ok || len(device) > maxDeviceName:
		return "", false, false
	case strings.HasPrefix(rest, hashMark):
		return "", true, true
	case plain.MatchString(rest):
		return rest, false, true
	}
	return "", false, false
}

// fit returns s if it is plain and not longer than limit bytes, else its hash:
// 128 bits are beyond any chance of two volumes meeting.
func fit(s string, limit int) string {
	if len(s) <= limit && plain.MatchString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashMark + hex.EncodeToString(sum[:16])
}

// validID reports whether id can be one that idOf returned.
func validID(id string) bool {
	return len(id) <= 63 && plain.MatchString(strings.TrimPrefix(id, hashMark))
}

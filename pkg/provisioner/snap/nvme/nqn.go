package nvme

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Prefix begins the NQN of every subsystem that is made here. It is DPF's, so
// that either finds what the other left.
const Prefix = "nqn.2022-10.io.nvda.nvme:dpf-"

// maxNQN is the longest NQN in bytes: NVM Express Base Specification, 4.7.
const maxNQN = 223

// hashDigits is how much of the device's SHA-256 keeps apart names that look
// alike once cleaned or cut.
const hashDigits = 8

// NQN returns the name of the subsystem of a device: the prefix, the device's
// name with every byte outside [A-Za-z0-9.-] replaced by '-' and cut to fit,
// and the first 8 hex digits of the name's SHA-256. What is such an NQN
// already is returned as it is.
func NQN(device string) string {
	if Own(device) {
		return device
	}
	sum := sha256.Sum256([]byte(device))
	suffix := "-" + hex.EncodeToString(sum[:])[:hashDigits]
	clean := strings.Map(nqnRune, device)
	if room := maxNQN - len(Prefix) - len(suffix); len(clean) > room {
		clean = clean[:room]
	}
	return Prefix + clean + suffix
}

// Own reports whether nqn is of a subsystem that is made here.
func Own(nqn string) bool { return strings.HasPrefix(nqn, Prefix) }

func nqnRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
		return r
	}
	return '-'
}

package nvmeaccess

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// maxNQN is the longest that an NQN may be, in bytes.
const maxNQN = 223

// infix stands between a base and an epoch.
const infix = ":e"

// HostNQN is the name under which a device is connected at an epoch: the base alone
// without one, which is epoch 0.
func HostNQN(base string, epoch int64) string {
	if epoch == 0 {
		return base
	}
	return base + infix + strconv.FormatInt(epoch, 10)
}

// EpochOf is the epoch of a host NQN of this base. ok is false for every name that HostNQN
// does not make, so that two spellings never stand for one epoch.
func EpochOf(base, nqn string) (epoch int64, ok bool) {
	if nqn == base {
		return 0, true
	}
	digits, ok := strings.CutPrefix(nqn, base+infix)
	if !ok {
		return 0, false
	}
	epoch, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || epoch < 1 || HostNQN(base, epoch) != nqn {
		return 0, false
	}
	return epoch, true
}

// checkBase refuses a base of which no NQN can be made for every epoch.
func checkBase(base string) error {
	const longest = len(infix) + len("9223372036854775807")
	if !strings.HasPrefix(base, "nqn.") || len(base)+longest > maxNQN {
		return fmt.Errorf("the base of host NQNs, %q, does not begin with nqn. or has more than %d bytes: %w", base, maxNQN-longest, provisioner.ErrInvalid)
	}
	return nil
}

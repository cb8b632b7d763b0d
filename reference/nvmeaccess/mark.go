package nvmeaccess

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
)

// mark is what is durable of a volume. It is written before the target is asked.
type mark struct {
	Volume string `json:"volume"`
	// Fenced: epochs below it are over. It never goes back.
	Fenced int64 `json:"fenced"`
	// Unanswered are the epochs whose admission was asked for without an answer that is
	// known here: the target may admit them yet.
	Unanswered []int64 `json:"unanswered,omitempty"`
}

// openBelow reports whether an epoch that is over may be admitted yet.
func (m mark) openBelow() bool { return slices.ContainsFunc(m.Unanswered, m.isOver) }

func (m mark) isOver(epoch int64) bool { return epoch < m.Fenced }

// marks keeps them in a directory, a file each. A lost file is not epoch 0: Admit refuses
// a volume without one, and a damaged one is an error for both.
type marks struct{ dir string }

func (m marks) path(volume, suffix string) string {
	sum := sha256.Sum256([]byte(volume))
	return filepath.Join(m.dir, hex.EncodeToString(sum[:16])+suffix)
}

func (m marks) load(volume string) (mark, bool, error) {
	got, found, err := files.Load[mark](m.path(volume, ".json"), "volume "+volume)
	if err == nil && found && (got.Volume != volume || got.Fenced < 0) {
		err = fmt.Errorf("the record of volume %s is damaged, it names volume %q and epoch %d: %w", volume, got.Volume, got.Fenced, provisioner.ErrPrecondition)
	}
	return got, found, err
}

func (m marks) save(got mark) error {
	if err := files.Save(m.path(got.Volume, ".json"), "volume "+got.Volume, got); err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

// lock has a volume for one caller at a time, of this process or another on the directory.
// The kernel ends it with the process. ErrBusy if another has it.
func (m marks) lock(volume string) (unlock func(), err error) {
	f, err := os.OpenFile(m.path(volume, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock volume %s: %w: %w", volume, provisioner.ErrUnavailable, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another call works on volume %s: %w", volume, provisioner.ErrBusy)
		}
		return nil, fmt.Errorf("lock volume %s: %w: %w", volume, provisioner.ErrUnavailable, err)
	}
	return func() { _ = f.Close() }, nil
}

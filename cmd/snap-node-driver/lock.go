package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/node/dpu/journal"
)

const (
	// lockName is the file that the one driver of a DPU holds locked.
	lockName = ".snap-node-driver.lock"
	// journalName is the file of the epochs that this DPU has shown and retired.
	journalName = ".snap-node-driver.journal"
	// lockRetry is how soon a driver that waits for its predecessor looks
	// again: the kernel frees the lock when that ends, however it ends.
	lockRetry = 100 * time.Millisecond
)

// lock waits until no other driver works on this DPU, so that one which is
// being replaced cannot show what the next one has withdrawn.
func (o *options) lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(o.state(), lockName)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the driver's lock, see --state-dir: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the driver's lock, see --state-dir: %w", err)
	}
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	for told := false; ; told = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			ctrl.Log.Info("another snap-node-driver works on this DPU: waiting for it to end", "lock", path)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another snap-node-driver on this DPU to end: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// state is the directory of what this process leaves for the next one.
func (o *options) state() string { return cmp.Or(o.stateDir, o.pluginRoot) }

// journal opens the journal; one that is broken is logged at once, and told on each
// attachment that it keeps from being shown.
func (o *options) journal() *journal.Journal {
	j := journal.Open(filepath.Join(o.state(), journalName))
	if err := j.Broken(); err != nil {
		ctrl.Log.Error(err, "open the journal")
	}
	return j
}

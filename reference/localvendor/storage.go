// Package localvendor is the reference vendor: a storage platform made of sparse
// files in one directory, which the controller and every DPU reach by the same
// name (a local disk on one machine, a shared file system on several).
//
// Storage owns the directory: <id>.img, or <id>.dir for a directory that several
// nodes share, holds a volume's data, <id>.json what it is and which nodes have
// it. Host, used on each DPU, turns an image into an SPDK AIO bdev of the SNAP
// service there, and a directory into an fsdev. Neither keeps truth in memory:
// both may be restarted between any two steps.
//
// It never formats, mounts or copies data.
package localvendor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/places"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

const (
	// Granularity is the step of volume sizes in bytes: sizes are rounded up.
	Granularity = 1 << 20
	// DefaultBytes is the size of a volume made without one: 1 GiB, as DPF's.
	DefaultBytes = 1 << 30
	// DefaultMaxBytes is the largest volume unless Options say otherwise: 1 TiB.
	DefaultMaxBytes = 1 << 40
)

// Options configure a Storage.
type Options struct {
	// TargetDir holds the volumes; it is made if it is missing.
	TargetDir string
	// MaxBytes is the largest volume; 0 means DefaultMaxBytes.
	MaxBytes int64
	// NodeExists, if set, says which nodes Attach knows; without it, all.
	NodeExists func(node string) bool
	// ManyNodes lets several nodes have a single-node volume at once. That is
	// safe where the nodes are DPUs that show a volume to their hosts only as
	// its writer claim allows, and needed where replicas are kept warm.
	ManyNodes bool
	// Target, if set, is how nodes reach the volumes, in place of the files.
	// Only then does Detach prove that a node cannot write any more.
	Target *Target
	// MaxPerNode is how many volumes a node may have; 0 means no limit.
	MaxPerNode int
	// Places are where there is storage: a volume is made at one of them, and is
	// reached from there. None: there are no places, and it is reached from
	// everywhere. What was made without a place is at the first.
	Places []provisioner.Place
	// FSType is the type of the file systems that images hold, for volumes of mode
	// Filesystem, on the one machine that may use this storage then; "" makes such
	// volumes directories beside the images, which have no size of their own.
	FSType string
	// Clock says when snapshots were made; nil is the machine's.
	Clock clock.PassiveClock
}

// Storage implements provisioner.Volumes and provisioner.Attachments over one
// directory; Platform has all its interfaces. Calls on different volumes run at once; a second call on the same
// volume gets ErrBusy.
type Storage struct {
	dir        string
	maxBytes   int64
	nodeExists func(string) bool
	manyNodes  bool
	target     *Target
	key        []byte // nil without a target
	maxPerNode int
	counting   sync.Mutex // while the volumes of a node are counted
	places     places.Places
	fsType     string
	clock      clock.PassiveClock
	reflink    func(dst, src *os.File) (bool, error)
	locks      keylock.Locks
	held       *os.File
}

// Open takes the target directory for this process and returns its Storage.
// ErrInUse if another process has it. Call Close to give it back.
func Open(o Options) (*Storage, error) {
	if !filepath.IsAbs(o.TargetDir) {
		return nil, fmt.Errorf("target directory %q: want an absolute path: %w", o.TargetDir, provisioner.ErrInvalid)
	}
	if err := os.MkdirAll(o.TargetDir, 0o750); err != nil {
		return nil, fmt.Errorf("make target directory: %w", err)
	}
	held, err := hold(filepath.Join(o.TargetDir, ".lock"), "another process manages it, stop that one first")
	if err != nil {
		return nil, err
	}
	s := &Storage{
		dir: o.TargetDir, maxBytes: o.MaxBytes, nodeExists: o.NodeExists, manyNodes: o.ManyNodes, target: o.Target,
		maxPerNode: o.MaxPerNode, places: o.Places, fsType: o.FSType, clock: o.Clock, reflink: files.Reflink, held: held,
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	if s.maxBytes <= 0 {
		s.maxBytes = DefaultMaxBytes
	}
	if s.nodeExists == nil {
		s.nodeExists = func(string) bool { return true }
	}
	if s.target != nil {
		if s.key, err = directoryKey(s.dir); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// hold takes the lock file for as long as the process lives: flock(2) is
// released by the kernel, so that a crash leaves nothing to clean up. taken says
// what it means that another process has it.
func hold(path, taken string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("target directory %s: %s: %w", filepath.Dir(path), taken, provisioner.ErrInUse)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// HoldTarget takes the directory for the one process that serves its volumes as
// a target: Close of what it returns, or the end of the process with its last
// write, gives it back. ErrInUse if another process has it.
func HoldTarget(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make target directory: %w", err)
	}
	return hold(filepath.Join(dir, ".target.lock"), "another process serves it, stop that one first")
}

// Close gives the directory back.
func (s *Storage) Close() error { return s.held.Close() }

// Ready returns nil if the directory can be read and written.
func (s *Storage) Ready() error {
	if err := unix.Access(s.dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("target directory %s cannot be used: %w", s.dir, err)
	}
	return nil
}

// space returns the size in bytes of the file system that holds the directory,
// and how much of it is free.
func (s *Storage) space() (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, 0, fmt.Errorf("measure target directory %s: %w", s.dir, err)
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// lock takes a volume for one operation.
func (s *Storage) lock(id string) (unlock func(), err error) {
	unlock, ok := s.locks.TryLock(id)
	if !ok {
		return nil, fmt.Errorf("volume %s has another operation under way: %w", id, provisioner.ErrBusy)
	}
	return unlock, nil
}

// Platform returns every interface that this storage has, but Host, which is its
// nodes'. Change is one of them only if the volumes' data flows through a target
// that can hold them to limits, Fencing only if through one that knows epochs.
func (s *Storage) Platform() provisioner.Platform {
	p := provisioner.Platform{
		Volumes: s, Attachments: s, Copies: s, Snapshots: snapshots{s}, Groups: groups{s}, Blocks: blocks{s},
		Inventory: inventory{s}, Room: room{s}, Expansion: s, Health: health{s},
	}
	if s.limitable() {
		p.Change = s
	}
	if s.target != nil && s.target.Fencer != nil {
		p.Fencing = s
	}
	return p
}

func (s *Storage) imagePath(id string) string { return filepath.Join(s.dir, id+".img") }

func (s *Storage) recordPath(id string) string { return filepath.Join(s.dir, id+".json") }

// load reads the record of a volume; found is false if there is none.
func (s *Storage) load(id string) (r records.Volume, found bool, err error) {
	r, found, err = records.Load(s.dir, id)
	r.Place = s.places.Since(r.Place)
	return r, found, err
}

// save writes the record of a volume: all of it or nothing, and on disk when
// it returns.
func (s *Storage) save(id string, r records.Volume) error {
	return files.Save(s.recordPath(id), "volume "+id, r)
}

package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// maxVolumes bounds the file. A DPU has some hundred functions, so of so many volumes
// most have gone from it.
const maxVolumes = 4096

// entry is what is known of one volume.
type entry struct {
	Name string `json:"name"`
	// Shown and Retired are the highest epochs.
	Shown   int64 `json:"shown,omitempty"`
	Retired int64 `json:"retired,omitempty"`
	// Change orders the entries by when they changed last.
	Change int64 `json:"change"`
}

// over reports whether the DPU has no business with the volume since.
func (e entry) over() bool { return e.Retired >= e.Shown }

type volumes map[types.UID]entry

// file is what is written. Sum is that of Volumes as it stands there.
type file struct {
	Version int             `json:"version"`
	Sum     string          `json:"sum"`
	Volumes json.RawMessage `json:"volumes"`
}

// Journal is the memory of one DPU. Safe for concurrent use.
type Journal struct {
	path string
	// sync has what was written to a file, or a directory, on the disk.
	sync func(*os.File) error

	mu      sync.Mutex
	volumes volumes
	broken  error
}

// Open reads the journal; a file that does not exist is an empty one. One that cannot be
// read is broken: then nothing is shown that is not shown already.
func Open(path string) *Journal {
	j := &Journal{path: path, sync: (*os.File).Sync, volumes: volumes{}}
	if err := j.read(); err != nil {
		j.broken = fmt.Errorf("the journal %s of this DPU cannot be read, so it is not known which epochs are over here, and nothing is shown anew: "+
			"if the cluster of the DPUs was not restored from a backup, move the file away and restart snap-node-driver: %w: %w", path, err, provisioner.ErrUnavailable)
	}
	return j
}

func (j *Journal) read() error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	switch {
	case f.Version != 1:
		return fmt.Errorf("it is of version %d, known is 1", f.Version)
	case f.Sum != sum(f.Volumes):
		return errors.New("its checksum is wrong")
	}
	return json.Unmarshal(f.Volumes, &j.volumes)
}

func sum(volumes []byte) string {
	h := sha256.Sum256(volumes)
	return hex.EncodeToString(h[:])
}

// Broken says why the journal cannot be relied on; nil if it can.
func (j *Journal) Broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// Refusal says why the volume may not be shown under the epoch; "" if nothing here
// speaks against it.
func (j *Journal) Refusal(uid types.UID, epoch int64) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.volumes[uid]
	if epoch > e.Retired && epoch >= e.Shown {
		return ""
	}
	return fmt.Sprintf("epoch %d of volume %s is over on this DPU, whose journal tells of epoch %d: was the cluster of the DPUs restored from a backup? "+
		"Not shown before a grant under a higher epoch; while WriterClaim %s is Free, its status.epoch may be raised to %d",
		epoch, e.Name, max(e.Retired, e.Shown), e.Name, max(e.Retired, e.Shown))
}

// Stands reports whether the volume was shown under the epoch last, and it was not retired.
func (j *Journal) Stands(uid types.UID, epoch int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.volumes[uid]
	return j.broken == nil && e.Shown == epoch && !e.over()
}

// Highest is the highest epoch that is known of the volume; 0 if none is.
func (j *Journal) Highest(uid types.UID) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.volumes[uid]
	return max(e.Retired, e.Shown)
}

// Show notes that the volume is about to be shown under the epoch. It may be shown only
// if that is nil: then it is on the disk.
func (j *Journal) Show(uid types.UID, name string, epoch int64) error {
	if message := j.Refusal(uid, epoch); message != "" {
		return fmt.Errorf("%s: %w", message, provisioner.ErrPrecondition)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.volumes[uid]
	switch {
	case j.broken != nil:
		return j.broken
	case e.Shown == epoch:
		return nil
	}
	was, known := j.volumes[uid]
	e.Name, e.Shown = name, epoch
	err := j.write(uid, e)
	switch {
	case err != nil && known: // it is not shown
		j.volumes[uid] = was
	case err != nil:
		delete(j.volumes, uid)
	}
	return err
}

// Standing are the volumes, by name, of which an epoch was shown and has not been retired, and
// that epoch.
func (j *Journal) Standing() map[string]int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]int64{}
	for _, e := range j.volumes {
		if !e.over() {
			out[e.Name] = max(out[e.Name], e.Shown)
		}
	}
	return out
}

// Retire notes that the epoch of a volume is over. uid is "" if it is not known: then it
// is that of the volumes of this name which were shown.
func (j *Journal) Retire(uid types.UID, name string, epoch int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return nil // nothing is shown anew
	}
	due := map[types.UID]entry{}
	for id, e := range j.volumes {
		if e.Name == name && e.Retired < epoch && (uid == "" || id == uid) {
			due[id] = e
		}
	}
	if _, known := j.volumes[uid]; uid != "" && !known {
		due[uid] = entry{Name: name}
	}
	for id, e := range due {
		e.Retired = epoch
		if err := j.write(id, e); err != nil {
			return err
		}
	}
	return nil
}

// write puts the entry into the journal, and on the disk.
func (j *Journal) write(uid types.UID, e entry) error {
	newest, oldest := int64(0), types.UID("")
	for id, other := range j.volumes {
		newest = max(newest, other.Change)
		if other.over() && (oldest == "" || other.Change < j.volumes[oldest].Change) {
			oldest = id
		}
	}
	e.Change = newest + 1
	if _, known := j.volumes[uid]; !known && len(j.volumes) >= maxVolumes {
		delete(j.volumes, oldest)
	}
	j.volumes[uid] = e
	text, err := json.Marshal(j.volumes)
	if err == nil {
		text, err = json.Marshal(file{Version: 1, Sum: sum(text), Volumes: text})
	}
	if err == nil {
		err = j.replace(text)
	}
	if err != nil {
		return fmt.Errorf("write the journal %s of this DPU, see --state-dir: %w: %w", j.path, err, provisioner.ErrUnavailable)
	}
	return nil
}

// replace writes the file so that after a crash it is there as before or as it is to be.
func (j *Journal) replace(text []byte) error {
	next, err := os.OpenFile(j.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err := errors.Join(err, j.sync(next), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(j.path+".new", j.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(j.path))
	return errors.Join(err, j.sync(dir), dir.Close())
}

package devices

import (
	"fmt"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/internal/filestore"
	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// record is what is kept of an open volume for the process that comes after this one. It is no truth: what
// is there is looked at in sysfs each time. It says where to look.
type record struct {
	// Boot of the host: another one has other devices, and nothing is open on it.
	Boot   string                 `json:"boot"`
	Volume string                 `json:"volume"`
	Device hostdev.Identity       `json:"device"`
	Tag    string                 `json:"tag,omitempty"`
	Mode   provisioner.VolumeMode `json:"mode"`
}

// records keeps them; the zero value keeps none.
type records struct {
	store filestore.Store[record]
	boot  string
	log   logr.Logger
}

// Remember has the host know the volumes that processes before this one have opened in the same boot, and keep
// those that it opens, in a directory that nothing else uses. It is called before all else.
func (h *Host) Remember(dir, boot string, log logr.Logger) error {
	h.records = records{store: filestore.Store[record]{Dir: dir}, boot: boot, log: log}
	all, err := h.records.store.All()
	if err != nil {
		return fmt.Errorf("read which devices the volumes of this host have, in %s: %w", dir, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range all {
		if r.Boot != boot {
			h.records.drop(r.Volume)
			continue
		}
		h.open[r.Volume] = opened{Identity: r.Device, tag: r.Tag, mode: r.Mode}
	}
	return nil
}

// keep keeps where a volume was seen. A volume is of use without it, so a failure is told and no more:
// then nothing is known of it after a restart, until it is opened again.
func (r records) keep(volume string, p opened) {
	if r.boot == "" {
		return
	}
	err := r.store.Put(volume, record{Boot: r.boot, Volume: volume, Device: p.Identity, Tag: p.tag, Mode: p.mode})
	if err != nil {
		r.log.Error(err, "a restart will not know the device of a volume", "volume", volume)
	}
}

// drop forgets it. What stays all the same goes with the boot.
func (r records) drop(volume string) {
	if r.boot == "" {
		return
	}
	if err := r.store.Delete(volume); err != nil {
		r.log.Error(err, "a restart will take a volume for open that is not", "volume", volume)
	}
}

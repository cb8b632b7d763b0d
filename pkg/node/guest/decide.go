package guest

import (
	"path/filepath"
	"regexp"

	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
)

// step is what to do about one entry of the table.
type step struct {
	entry Entry
	// mount block, or else unmount; neither if why is set.
	mount bool
	block hostdev.Block
	why   error
}

var diskName = regexp.MustCompile(`^nvme\d+n\d+$`)

// plan compares the table with what the DPU shows and what is mounted. Every
// device that is there is to be mounted, which changes nothing where it is. A
// device that is gone is unmounted; what somebody else has mounted in its place
// is left alone.
func plan(table []Entry, blocks []hostdev.Block, mounts []mount.MountPoint, dev string) []step {
	var out []step
	for _, e := range table {
		block, err := e.Device.Pick(blocks)
		switch {
		case err == nil:
			out = append(out, step{entry: e, mount: true, block: block})
		case !isAbsent(err):
			out = append(out, step{entry: e, why: err})
		case ours(e.Dir, mounts, dev):
			out = append(out, step{entry: e})
		}
	}
	return out
}

// ours reports whether the topmost mount on dir is of a device of the DPU.
func ours(dir string, mounts []mount.MountPoint, dev string) bool {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].Path == dir {
			source := mounts[i].Device
			return filepath.Dir(source) == filepath.Clean(dev) && diskName.MatchString(filepath.Base(source))
		}
	}
	return false
}

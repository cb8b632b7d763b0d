package zerotrust

import (
	"path/filepath"
	"regexp"
	"slices"

	"k8s.io/mount-utils"
)

// step is what to do about one entry of the table.
type step struct {
	entry Entry
	// mount device, or else unmount; neither if why is set.
	mount  bool
	device Shown
	why    error
}

var diskName = regexp.MustCompile(`^nvme\d+n\d+$`)

// plan compares the table with what the DPU shows and what is mounted. Every
// device that is there is to be mounted, which changes nothing where it is. A
// device that is gone is unmounted; what else was mounted in its place is left
// alone.
func plan(table []Entry, shown []Shown, mounts []mount.MountPoint, is own) []step {
	var out []step
	for _, e := range table {
		device, err := e.Device.Pick(shown)
		if err == nil {
			err = e.fits(device)
		}
		switch {
		case err == nil:
			out = append(out, step{entry: e, mount: true, device: device})
		case !isAbsent(err):
			out = append(out, step{entry: e, why: err})
		case is.ours(e, mounts):
			out = append(out, step{entry: e})
		}
	}
	return out
}

// own is how mounts of the DPU's devices are known: the directory of their
// files, and the type that file systems are mounted as.
type own struct{ dev, shared string }

// ours reports whether the topmost mount on the entry's directory is of a device
// of the DPU, of the entry's kind.
func (o own) ours(e Entry, mounts []mount.MountPoint) bool {
	for _, m := range slices.Backward(mounts) {
		switch {
		case m.Path != e.Dir:
		case e.FSType == sharedType:
			return m.Type == o.shared && (e.Device.Tag == "" || e.Device.Tag == m.Device)
		default:
			return filepath.Dir(m.Device) == filepath.Clean(o.dev) && diskName.MatchString(filepath.Base(m.Device))
		}
	}
	return false
}

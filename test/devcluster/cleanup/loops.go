package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// loopMajor is the device number of loop devices (Documentation/admin-guide/devices.txt).
const loopMajor = 7

// Loop is a bound loop device.
type Loop struct {
	// Device is its node, for example /dev/loop3, and Number its device number.
	Device string
	Number uint64
	// File is the backing file as the kernel tells it, Label as the binder
	// wrote it; after its mount is gone only the second still tells the path.
	File, Label string
	// BackingDevice and Inode identify the backing file without a path.
	BackingDevice, Inode uint64
	// BackingNumber is the device number if the backing file is a device.
	BackingNumber uint64
}

// Inode identifies a file on this machine.
type Inode struct{ Device, Number uint64 }

// Ours picks those loop devices that belong to the bed, an outer one before the
// one it lies on: the kubelet puts a second loop device over a block volume.
func Ours(loops []Loop, files map[Inode]bool) []Loop {
	var ours []Loop
	taken := map[uint64]bool{}
	for _, l := range loops {
		if ownsFile(l.File) || ownsFile(l.Label) || files[Inode{l.BackingDevice, l.Inode}] {
			ours, taken[l.Number] = append(ours, l), true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, l := range loops {
			if !taken[l.Number] && l.BackingNumber != 0 && taken[l.BackingNumber] {
				ours, taken[l.Number], grown = append([]Loop{l}, ours...), true, true
			}
		}
	}
	return ours
}

// ownsFile knows the bed's files and also what the kubelet of a node binds:
// this machine itself runs no kubelet.
func ownsFile(path string) bool {
	path = strings.TrimSuffix(path, " (deleted)")
	return layout.Owns(path) || strings.HasPrefix(path, "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/")
}

func loops() ([]Loop, error) {
	dirs, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var bound []Loop
	for _, dir := range dirs {
		name := filepath.Base(filepath.Dir(dir))
		file, err := os.ReadFile(filepath.Join(dir, "backing_file"))
		if err != nil {
			continue // unbound
		}
		l := Loop{Device: "/dev/" + name, File: strings.TrimSpace(string(file))}
		l.describe()
		bound = append(bound, l)
	}
	return bound, nil
}

// describe asks the device itself. A device that does not answer keeps what
// sysfs told.
func (l *Loop) describe() {
	var stat unix.Stat_t
	if unix.Stat(l.Device, &stat) == nil {
		l.Number = stat.Rdev
	}
	f, err := os.OpenFile(l.Device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return
	}
	l.Label = string(bytes.TrimRight(info.File_name[:], "\x00"))
	l.BackingDevice, l.Inode = info.Device, info.Inode
	if unix.Major(info.Rdevice) == loopMajor {
		l.BackingNumber = info.Rdevice
	}
}

func ourLoops() ([]Loop, error) {
	all, err := loops()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return Ours(all, dataFiles()), nil
}

// dataFiles lists the files in the data directory by inode.
func dataFiles() map[Inode]bool {
	files := map[Inode]bool{}
	_ = filepath.WalkDir(layout.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && strings.HasSuffix(path, "/var-lib-containerd") {
			return fs.SkipDir
		}
		var stat unix.Stat_t
		if d.Type().IsRegular() && unix.Lstat(path, &stat) == nil {
			files[Inode{stat.Dev, stat.Ino}] = true
		}
		return nil
	})
	return files
}

func detach(l Loop) error {
	f, err := os.OpenFile(l.Device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open loop device %s: %w", l.Device, err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach loop device %s from %s: %w", l.Device, l.File, err)
	}
	return nil
}

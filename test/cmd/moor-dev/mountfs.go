package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/fusepath"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// mountFSCommand is the hidden command for which devcluster.FSHelper stands.
const mountFSCommand = "mount-virtiofs"

// helper reports whether a program of that name is devcluster.FSHelper, or the
// link to it by which mount(8) finds it.
func helper(name string) bool {
	name = filepath.Base(name)
	return name == filepath.Base(devcluster.FSHelper) || name == "mount.fuse"
}

// mountFS mounts a file system that the emulated DPU of this machine shows, as
// mount(8) asks its helpers: TAG TARGET -o OPTIONS -t TYPE.
func mountFS() *cobra.Command {
	var options, fsType string
	cmd := &cobra.Command{
		Use:    mountFSCommand + " TAG TARGET",
		Short:  "Mount an emulated virtio-fs device, as the kernel of a real host does",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			flags, err := mountFlags(options)
			if err != nil {
				return fmt.Errorf("mount %s on %s: %w", args[0], args[1], err)
			}
			socket := filepath.Join(layout.PCIeDir, "dev", snapemulator.FSDir, filepath.Base(args[0]))
			return fusepath.Mount(socket, args[0], args[1], flags)
		},
	}
	cmd.Flags().StringVarP(&options, "options", "o", "", "mount options with commas between them")
	cmd.Flags().StringVarP(&fsType, "type", "t", "", "type of the file system; there is one only")
	return cmd
}

// knownOptions are those of every file system; what is 0 is the default.
var knownOptions = map[string]uintptr{
	"": 0, "rw": 0, "dev": 0, "suid": 0, "exec": 0, "async": 0, "atime": 0, "diratime": 0, "relatime": unix.MS_RELATIME,
	"ro": unix.MS_RDONLY, "nodev": unix.MS_NODEV, "nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
}

func mountFlags(options string) (flags uintptr, err error) {
	for o := range strings.SplitSeq(options, ",") {
		flag, known := knownOptions[o]
		if !known {
			return 0, fmt.Errorf("unknown option %q", o)
		}
		flags |= flag
	}
	return flags, nil
}

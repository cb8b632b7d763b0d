package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountFlags(t *testing.T) {
	for options, want := range map[string]uintptr{
		"": 0, "rw,dev,suid": 0, "ro": unix.MS_RDONLY, "rw,noatime,nosuid": unix.MS_NOATIME | unix.MS_NOSUID,
	} {
		if got, err := mountFlags(options); err != nil || got != want {
			t.Errorf("%q: %#x, %v; want %#x", options, got, err, want)
		}
	}
	if _, err := mountFlags("rw,dax"); err == nil {
		t.Error("an option that nothing here knows is accepted")
	}
}

// TestActsAsTheHelper: run under the helper's name, it mounts, and mount(8)'s own
// words are understood.
func TestActsAsTheHelper(t *testing.T) {
	for name, want := range map[string]bool{"/sbin/mount.fuse": true, "mount.fuse3": true, "moor-dev": false, "bin/moor-dev.old": false} {
		if got := helper(name); got != want {
			t.Errorf("%s acts as the helper: %t", name, got)
		}
	}
	cmd, _, err := root().Find([]string{mountFSCommand})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags([]string{"tag", "/mnt", "-o", "rw,noatime", "-t", "fuse.virtiofs"}); err != nil {
		t.Fatal(err)
	}
}

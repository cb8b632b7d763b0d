//go:build root

package fusepath_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestVirtioFSIsAFileSystem: what a host does on virtio-fs comes out as on a disk
// of its own; two hosts have it mounted.
func TestVirtioFSIsAFileSystem(t *testing.T) {
	dir, shared := t.TempDir(), t.TempDir()
	a, b := newHost(t, startFS(t, dir, "dpu-a", shared)), newHost(t, startFS(t, dir, "dpu-b", shared))
	a.run("cd $mnt")
	for _, c := range []struct{ name, on, other, check, want string }{
		{
			name: "what is made in a directory with setgid has its group",
			on:   "mkdir group && chown 7:4711 group && chmod 2775 group && cd group && echo > file && mkdir dir && mknod fifo p && ln -s file link && cd ..",
			// Of a symbolic link the group alone says something.
			check: "stat -c '%n %u:%g %a' group/file group/dir group/fifo && stat -c '%n %u:%g' group/link",
			want:  "group/file 0:4711 644\ngroup/dir 0:4711 2755\ngroup/fifo 0:4711 644\ngroup/link 0:4711\n",
		},
		{
			name:  "what another user makes is his",
			on:    "chmod 777 . && setpriv --reuid 1000 --regid 1001 --clear-groups sh -c 'umask 0 && echo > his && mkdir hisdir' && setpriv --reuid 1000 --regid 1001 --clear-groups sh -c 'echo > group/late'; true",
			check: "stat -c '%n %u:%g %a' his hisdir && ls group",
			want:  "his 1000:1001 666\nhisdir 1000:1001 777\ndir\nfifo\nfile\nlink\n",
		},
		{
			name:  "a removed directory that is in use has attributes",
			on:    "mkdir gone && cd gone",
			other: "rmdir $mnt/gone",
			check: "stat -c %F . && ! (echo > new) 2>/dev/null && ls 2>/dev/null | wc -l && cd $mnt",
			want:  "directory\n0\n",
		},
		{
			name:  "a removed file that is open can be read, written and changed",
			on:    "echo text > gone && exec 3<>gone",
			other: "rm $mnt/gone",
			check: "read line <&3 && echo $line && echo more >&3 && chmod 600 /proc/self/fd/3 && chown 5:6 /proc/self/fd/3 && truncate -s 7 /proc/self/fd/3 && touch -d @0 /proc/self/fd/3 && stat -L -c '%s %h %a %u:%g %Y' /proc/self/fd/3 && exec 3>&-",
			want:  "text\n7 0 600 5:6 0\n",
		},
		{
			name:  "a directory that another host moves is the same",
			on:    "mkdir -p from/deep && cd from/deep",
			other: "mv $mnt/from $mnt/to",
			check: "echo here > file && cat $mnt/to/deep/file && cd $mnt && ls -d from 2>/dev/null; rm -r to",
			want:  "here\n",
		},
		{
			name:  "another file of the same name is another",
			on:    "echo old > name && cat name > /dev/null && exec 3<name",
			other: "echo new > $mnt/name.new && mv $mnt/name.new $mnt/name",
			check: "cat <&3 name - && exec 3<&-",
			want:  "new\nold\n",
		},
		{
			name:  "links",
			on:    "echo 1 > one && ln one two && ln -s two soft",
			other: "echo 2 >> $mnt/two && mv $mnt/one $mnt/three",
			check: "cat soft && stat -c '%h %F' three && readlink soft && [ three -ef two ] && rm two three soft",
			want:  "1\n2\n2 regular file\ntwo\n",
		},
		{
			name:  "a file that is there is not made again",
			on:    "! test -e both",
			other: "echo theirs > $mnt/both && chown 8:9 $mnt/both",
			check: "(set -C; ! echo mine > both) 2>/dev/null && echo mine >> both && cat both && stat -c %u:%g both",
			want:  "theirs\nmine\n8:9\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.run(c.on)
			b.run(c.other + "\ntrue")
			if got := a.run(c.check); got != c.want {
				t.Errorf("%s printed\n%s\nwant\n%s", c.check, got, c.want)
			}
		})
	}
	a.run("cd /")
}

// openBelow counts the descriptors of files in dir, and of dir, that this process has.
func openBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(target, dir) {
			n++
		}
	}
	return n
}

// TestVirtioFSDescriptors: those of files that are no longer used are closed, and
// all when the device is unplugged.
func TestVirtioFSDescriptors(t *testing.T) {
	dir, shared := t.TempDir(), t.TempDir()
	d := startFS(t, dir, "dpu", shared)
	h := newHost(t, d)
	h.run("cd $mnt && i=0 && while [ $i -lt 300 ]; do i=$((i+1)); echo $i > file && rm file; done; mkdir stays && cd stays")
	eventually(t, "of all files only the two directories are open", func() bool {
		runtime.GC()
		return openBelow(t, shared) == 2
	})
	d.call(t, "virtio_fs_doca_device_hotunplug", map[string]any{"dev_name": "dev_vol", "wait_for_done": true}, nil)
	if n := openBelow(t, shared); n != 0 {
		t.Errorf("%d descriptors are open after the device is unplugged", n)
	}
	h.run("cd /")
}

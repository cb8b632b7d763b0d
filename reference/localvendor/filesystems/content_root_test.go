//go:build root

package filesystems

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestKubeletLetsItGo: a kubelet has a volume unstaged only if its directory is mounted nowhere but where it is
// staged, by the mount table.
func TestKubeletLetsItGo(t *testing.T) {
	m, staging := newMachine(t), t.TempDir()
	noError(t, unix.Mount(m.opened(t, m.made(t, "vol")), staging, "", unix.MS_BIND, ""))
	t.Cleanup(func() { noError(t, unix.Unmount(staging, 0)) })
	refs, err := mount.New("").GetMountRefs(staging)
	noError(t, err)
	if len(refs) != 0 {
		t.Errorf("it is mounted on %q too", refs)
	}
}

// TestContent: the directory of the volume is made whole or not at all, and never in place of files that an
// earlier version has at the root.
func TestContent(t *testing.T) {
	for name, tc := range map[string]struct {
		has      []string
		readOnly bool
		words    string
	}{
		"new":                       {has: []string{"lost+found/"}},
		"begun":                     {has: []string{"lost+found/", "volume.new/"}},
		"there":                     {has: []string{"lost+found/", "volume/", "else/"}},
		"there, for reading":        {has: []string{"volume/"}, readOnly: true},
		"new, for reading":          {readOnly: true, words: "use the volume once for writing"},
		"files at the root":         {has: []string{"lost+found/", "data/"}, words: "move them there"},
		"a file of the name":        {has: []string{"volume"}, words: "is no directory"},
		"files, and one is the new": {has: []string{"volume.new/", "data/"}, words: "move them there"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, what := range tc.has {
				if d, is := strings.CutSuffix(what, "/"); is {
					noError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
				} else {
					noError(t, os.WriteFile(filepath.Join(dir, what), nil, 0o600))
				}
			}
			err := contentIn(dir, tc.readOnly)
			if tc.words != "" {
				wantError(t, err, provisioner.ErrPrecondition, tc.words)
				return
			}
			noError(t, err)
			if fi, err := os.Stat(filepath.Join(dir, "volume")); err != nil || !fi.IsDir() || !slices.Contains(tc.has, "volume/") && fi.Mode().Perm() != contentMode {
				t.Errorf("%v, %v", fi, err)
			}
		})
	}
}

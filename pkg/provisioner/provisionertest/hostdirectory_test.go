package provisionertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// directories is a Host over one directory: a volume's own is in "data", and a
// file in "open" says that it is open.
type directories struct {
	root string
	mu   *sync.Mutex
	// mistake is one that is made on purpose.
	mistake string
}

func newDirectories(t *testing.T, mistake string) directories {
	t.Helper()
	d := directories{root: t.TempDir(), mu: &sync.Mutex{}, mistake: mistake}
	for _, sub := range []string{"data", "open"} {
		wantNil(t, "make "+sub, os.Mkdir(filepath.Join(d.root, sub), 0o750))
	}
	return d
}

func (d directories) device(id string) provisioner.Device {
	dir := filepath.Join(d.root, "data", id)
	switch d.mistake {
	case "one for all":
		dir = filepath.Dir(dir)
	case "relative":
		dir = "data/" + id
	}
	out := provisioner.Device{VolumeID: id, Name: id, Directory: dir, Mode: provisioner.Filesystem}
	if d.mistake == "two sorts" {
		out.Tag = id
	}
	return out
}

func (d directories) mark(id string) string { return filepath.Join(d.root, "open", id) }

func (d directories) Open(_ context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if spec.VolumeID == "" || spec.Mode == provisioner.Block && d.mistake != "raw" {
		return provisioner.Device{}, fmt.Errorf("open volume %q as %s: %w", spec.VolumeID, spec.Mode, provisioner.ErrInvalid)
	}
	dir := filepath.Join(d.root, "data", spec.VolumeID)
	if d.mistake == "emptied" {
		if err := os.RemoveAll(dir); err != nil {
			return provisioner.Device{}, err
		}
	}
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(d.mark(spec.VolumeID), nil, 0o600)); err != nil {
		return provisioner.Device{}, err
	}
	return d.device(spec.VolumeID), nil
}

func (d directories) Close(_ context.Context, id, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mistake == "removed" {
		if err := os.RemoveAll(filepath.Join(d.root, "data", id)); err != nil {
			return err
		}
	}
	if err := os.Remove(d.mark(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d directories) Lookup(_ context.Context, id string) (provisioner.Device, error) {
	if _, err := os.Stat(d.mark(id)); err != nil {
		return provisioner.Device{}, fmt.Errorf("%w: %w", provisioner.ErrNotFound, err)
	}
	return d.device(id), nil
}

func (d directories) List(context.Context) ([]provisioner.Device, error) {
	entries, err := os.ReadDir(filepath.Join(d.root, "open"))
	var out []provisioner.Device
	for _, e := range entries {
		out = append(out, d.device(e.Name()))
	}
	return out, err
}

// restart forgets what is open if that is the mistake.
func (d directories) restart(t *testing.T) provisioner.Host {
	t.Helper()
	if d.mistake == "forgets" {
		return newDirectories(t, "")
	}
	return d
}

// plantedBy is the environment variable by which a run of TestDirectories makes a
// mistake.
const plantedBy = "MOOR_TEST_MISTAKE"

func TestDirectoriesKeepTheContract(t *testing.T) {
	TestHost(t, func(t *testing.T) HostUnderTest {
		d := newDirectories(t, os.Getenv(plantedBy))
		return HostUnderTest{Host: d, Restart: d.restart, Prepare: func(_ *testing.T, name string) provisioner.OpenSpec {
			return provisioner.OpenSpec{VolumeID: name, Mode: provisioner.Filesystem}
		}}
	})
}

// TestMistakesAreCaught runs the suite over a Host that makes a mistake: it has to
// fail, for that reason.
func TestMistakesAreCaught(t *testing.T) {
	program, err := os.Executable()
	wantNil(t, "find this program", err)
	for mistake, words := range map[string]string{
		"one for all": "which share files",
		"relative":    "want a file system at a plain absolute path",
		"two sorts":   "a device has a path, a tag or a directory",
		"raw":         "volumeMode Block was opened",
		"emptied":     "after an open that was repeated the volume's file holds",
		"removed":     "after a close the volume's file holds",
		"forgets":     "lookup after a restart",
	} {
		t.Run(mistake, func(t *testing.T) {
			cmd := exec.CommandContext(suiteContext(t), program, "-test.run=^TestDirectoriesKeepTheContract$")
			cmd.Env = append(os.Environ(), plantedBy+"="+mistake)
			out, err := cmd.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), words) {
				t.Errorf("the suite ended with %v, want a failure with %q:\n%s", err, words, out)
			}
		})
	}
}

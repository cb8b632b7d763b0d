package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestEpochsThatAreOver: what was retired, or shown under a later epoch, is not shown
// again, by this process or one after it.
func TestEpochsThatAreOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := Open(path)
	must(t, j.Show("u1", "v1", 3))
	must(t, j.Show("u1", "v1", 3)) // repeated
	must(t, j.Retire("u1", "v1", 4))
	must(t, j.Retire("u1", "v1", 2)) // which takes nothing back
	must(t, j.Retire("u2", "v2", 7)) // granted, and never shown
	must(t, j.Show("u3", "v3", 5))
	for _, again := range []*Journal{j, Open(path)} {
		for _, c := range []struct {
			uid     types.UID
			epoch   int64
			refused bool
		}{
			{"u1", 3, true},
			{"u1", 4, true},
			{"u1", 5, false},
			{"u2", 7, true},
			{"u2", 8, false},
			{"u3", 4, true},
			{"u3", 5, false},
			{"u3", 6, false},
			{"other", 1, false},
		} {
			if message := again.Refusal(c.uid, c.epoch); (message != "") != c.refused {
				t.Errorf("%s, epoch %d: %q", c.uid, c.epoch, message)
			}
		}
		if err := again.Show("u1", "v1", 4); !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), "WriterClaim v1") {
			t.Errorf("shown: %v", err)
		}
	}
}

// TestRetiredByName: where the UID is not known, the volumes of that name are meant.
func TestRetiredByName(t *testing.T) {
	j := Open(filepath.Join(t.TempDir(), "journal"))
	must(t, j.Show("u1", "v1", 3))
	must(t, j.Show("u2", "v2", 3))
	must(t, j.Retire("", "v1", 3))
	if j.Refusal("u1", 3) == "" || j.Refusal("u2", 3) != "" || j.Refusal("", 1) != "" {
		t.Errorf("%+v", j.volumes)
	}
}

// TestOneName: a volume was made anew under the name of another. What is retired by UID is
// that one alone, and without one all that have the name are.
func TestOneName(t *testing.T) {
	j := Open(filepath.Join(t.TempDir(), "journal"))
	standing := func(want map[string]int64) {
		t.Helper()
		if got := j.Standing(); !maps.Equal(got, want) {
			t.Errorf("%v stands, want %v", got, want)
		}
	}
	must(t, j.Show("u1", "v", 3))
	must(t, j.Show("u2", "v", 5))
	must(t, j.Show("u3", "v", 4))
	must(t, j.Show("other", "w", 1))
	standing(map[string]int64{"v": 5, "w": 1})
	must(t, j.Retire("u2", "v", 5))
	standing(map[string]int64{"v": 4, "w": 1})
	must(t, j.Retire("", "v", 6))
	standing(map[string]int64{"w": 1})
	for _, uid := range []types.UID{"u1", "u2", "u3"} {
		if j.Highest(uid) != 6 {
			t.Errorf("%s: %+v", uid, j.volumes)
		}
	}
}

// TestBroken: what cannot be read is told, shows nothing, and is left as it is.
func TestBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	must(t, Open(path).Show("u1", "v1", 3))
	good, err := os.ReadFile(path)
	must(t, err)
	for name, c := range map[string]struct{ text, why string }{
		"empty":           {"", "unexpected end"},
		"cut off":         {string(good[:len(good)-5]), "unexpected end"},
		"changed":         {strings.Replace(string(good), `"shown":3`, `"shown":1`, 1), "its checksum is wrong"},
		"a later version": {strings.Replace(string(good), `"version":1`, `"version":2`, 1), "it is of version 2"},
		"no journal":      {"{}", "it is of version 0"},
		"another's":       {`[1]`, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.text
			must(t, os.WriteFile(path, []byte(text), 0o600))
			j := Open(path)
			if err := j.Show("u9", "v9", 9); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "move the file away") || !strings.Contains(err.Error(), c.why) || j.Broken() == nil {
				t.Errorf("shown: %v", err)
			}
			must(t, j.Retire("u9", "v9", 9))
			if now, err := os.ReadFile(path); err != nil || string(now) != text {
				t.Errorf("overwritten: %q, %v", now, err)
			}
			if j.Refusal("u1", 3) != "" {
				t.Error("what is shown already would be withdrawn")
			}
		})
	}
}

// TestUnwritten: what is not on the disk is not shown.
func TestUnwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	j := Open(filepath.Join(dir, "journal"))
	for range 2 {
		if err := j.Show("u1", "v1", 3); !errors.Is(err, provisioner.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	must(t, os.Mkdir(dir, 0o700))
	must(t, j.Show("u1", "v1", 3))
	if again := Open(filepath.Join(dir, "journal")); again.Refusal("u1", 2) == "" {
		t.Error("not on the disk")
	}
}

// TestUnreadable: what is there and cannot be read is not taken for an empty journal.
func TestUnreadable(t *testing.T) {
	if j := Open(t.TempDir()); j.Broken() == nil || !strings.Contains(j.Broken().Error(), "is a directory") {
		t.Errorf("%v", j.Broken())
	}
}

// TestFailedWrite: each step of a write can fail. Then nothing is shown, what was known
// stands, and what is on the disk is as before.
func TestFailedWrite(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(t *testing.T, j *Journal)
		why   string
		after bool // the file was replaced already
	}{
		"it cannot be made": {func(t *testing.T, j *Journal) { must(t, os.Mkdir(j.path+".new", 0o700)) }, "open " /* the path */, false},
		"the disk is full":  {func(t *testing.T, j *Journal) { must(t, os.Symlink("/dev/full", j.path+".new")); j.sync = noSync }, "no space left", false},
		"it is not synced":  {func(_ *testing.T, j *Journal) { j.sync = func(*os.File) error { return errors.New("lost") } }, "lost", false},
		"it cannot take the place of the other": {func(t *testing.T, j *Journal) {
			must(t, os.Remove(j.path))
			must(t, os.MkdirAll(filepath.Join(j.path, "full"), 0o700))
		}, "rename ", true},
		"the directory is not synced": {func(_ *testing.T, j *Journal) {
			j.sync = func(f *os.File) error {
				if f.Name() == filepath.Dir(j.path) {
					return errors.New("lost")
				}
				return nil
			}
		}, "lost", true},
	} {
		t.Run(name, func(t *testing.T) {
			j := Open(filepath.Join(t.TempDir(), "journal"))
			must(t, j.Show("u1", "v1", 3))
			c.fails(t, j)
			for _, uid := range []types.UID{"u1", "u2"} {
				if err := j.Show(uid, "v1", 4); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%s is shown: %v", uid, err)
				}
			}
			if j.Highest("u1") != 3 || j.Highest("u2") != 0 || len(j.volumes) != 1 {
				t.Errorf("what is known: %+v", j.volumes)
			}
			if err := j.Retire("u1", "v1", 3); !errors.Is(err, provisioner.ErrUnavailable) {
				t.Errorf("retired: %v", err)
			}
			if again := Open(j.path); !c.after && (again.Broken() != nil || again.Highest("u1") != 3 || again.Highest("u2") != 0) {
				t.Errorf("on the disk: %+v, %v", again.volumes, again.Broken())
			}
		})
	}
}

func noSync(*os.File) error { return nil }

// TestSynced: the file is on the disk before it takes the place of the other, and its name is
// before the volume is shown. A program that is not this one cannot read or run it.
func TestSynced(t *testing.T) {
	j := Open(filepath.Join(t.TempDir(), "journal"))
	var synced []string
	j.sync = func(f *os.File) error {
		text, err := os.ReadFile(j.path + ".new")
		synced = append(synced, fmt.Sprintf("%s: %t", filepath.Base(f.Name()), err == nil && strings.Contains(string(text), `"shown":3`)))
		return f.Sync()
	}
	must(t, j.Show("u1", "v1", 3))
	if want := []string{"journal.new: true", filepath.Base(filepath.Dir(j.path)) + ": false"}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	if info, err := os.Stat(j.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestWrittenOnce: what the journal tells already is not written again.
func TestWrittenOnce(t *testing.T) {
	j := Open(filepath.Join(t.TempDir(), "journal"))
	written := 0
	j.sync = func(*os.File) error { written++; return nil }
	for _, c := range []struct {
		does   func() error
		writes int
	}{
		{func() error { return j.Show("u1", "v1", 3) }, 2},
		{func() error { return j.Show("u1", "v1", 3) }, 0},
		{func() error { return j.Show("u1", "v1", 4) }, 2},
		{func() error { return j.Retire("u1", "v1", 4) }, 2},
		{func() error { return j.Retire("u1", "v1", 4) }, 0},
		{func() error { return j.Retire("u1", "v1", 3) }, 0},
		{func() error { return j.Retire("", "v1", 4) }, 0},
	} {
		written = 0
		if must(t, c.does()); written != c.writes {
			t.Errorf("%d times synced, want %d: %+v", written, c.writes, j.volumes)
		}
	}
	if j.Highest("u1") != 4 || j.Highest("u2") != 0 {
		t.Errorf("%+v", j.volumes)
	}
}

// TestCrash: what a crash leaves of a write is not read.
func TestCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	must(t, Open(path).Show("u1", "v1", 3))
	must(t, os.WriteFile(path+".new", []byte(`{"vers`), 0o600))
	j := Open(path)
	must(t, j.Broken())
	must(t, j.Retire("u1", "v1", 3))
	if Open(path).Refusal("u1", 3) == "" {
		t.Error("not retired")
	}
}

// TestBounded: the oldest of what is over is forgotten, and nothing that may be shown.
func TestBounded(t *testing.T) {
	const most = 4096 // as docs/components/snap-node-driver.md says
	j := Open(filepath.Join(t.TempDir(), "journal"))
	for i := range int64(most) {
		uid := types.UID(fmt.Sprint(i))
		j.volumes[uid] = entry{Name: "v", Shown: 2, Retired: 2, Change: i}
	}
	j.volumes["0"] = entry{Name: "v0", Shown: 2, Retired: 1}
	must(t, j.Show("new", "new", 1))
	if len(j.volumes) != most || j.Refusal("0", 1) == "" || j.Refusal("1", 2) != "" || j.Refusal("2", 2) == "" || j.Refusal("new", 0) == "" {
		t.Errorf("%d volumes: %+v, %+v, %+v", len(j.volumes), j.volumes["0"], j.volumes["1"], j.volumes["new"])
	}
}

// TestChanges: the journal knows in which order its volumes changed, also after a restart.
func TestChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	last := int64(0)
	for i, uid := range []types.UID{"u3", "u1", "u2", "u1", "u3"} {
		j := Open(path)
		must(t, j.Show(uid, "v", int64(i)+1))
		if now := j.volumes[uid].Change; now <= last {
			t.Errorf("change %d of %s is not after %d", now, uid, last)
		} else {
			last = now
		}
	}
}

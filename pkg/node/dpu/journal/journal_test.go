package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestBroken: what cannot be read is told, shows nothing, and is left as it is.
func TestBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	must(t, Open(path).Show("u1", "v1", 3))
	good, err := os.ReadFile(path)
	must(t, err)
	for name, text := range map[string]string{
		"empty": "", "cut off": string(good[:len(good)-5]), "changed": strings.Replace(string(good), `"shown":3`, `"shown":1`, 1),
		"a later version": strings.Replace(string(good), `"version":1`, `"version":2`, 1), "no journal": "{}", "another's": `[1]`,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(path, []byte(text), 0o600))
			j := Open(path)
			if err := j.Show("u9", "v9", 9); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "move the file away") || j.Broken() == nil {
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
	j := Open(filepath.Join(t.TempDir(), "journal"))
	for i := range int64(maxVolumes) {
		uid := types.UID(fmt.Sprint(i))
		j.volumes[uid] = entry{Name: "v", Shown: 2, Retired: 2, Change: i}
	}
	j.volumes["0"] = entry{Name: "v0", Shown: 2, Retired: 1}
	must(t, j.Show("new", "new", 1))
	if len(j.volumes) != maxVolumes || j.Refusal("0", 1) == "" || j.Refusal("1", 2) != "" || j.Refusal("2", 2) == "" || j.Refusal("new", 0) == "" {
		t.Errorf("%d volumes: %+v, %+v, %+v", len(j.volumes), j.volumes["0"], j.volumes["1"], j.volumes["new"])
	}
}

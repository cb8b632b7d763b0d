package filestore

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type record struct {
	A string
	B map[string]string
}

func TestKeep(t *testing.T) {
	s := Store[record]{Dir: filepath.Join(t.TempDir(), "made", "when needed")}
	want := func(key string, want record, there bool) {
		t.Helper()
		got, found, err := s.Get(key)
		if diff := cmp.Diff(want, got); diff != "" || found != there || err != nil {
			t.Errorf("%s: found %v, %v (-want +got):\n%s", key, found, err, diff)
		}
	}
	put := func(key string, r record) {
		t.Helper()
		if err := s.Put(key, r); err != nil {
			t.Fatal(err)
		}
	}
	forget := func(key string) {
		t.Helper()
		if err := s.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	want("a", record{}, false)
	forget("a")
	put("a", record{A: "1", B: map[string]string{"x": "y"}})
	put("../a/b\x00", record{A: "2"})
	put("a", record{A: "3"})
	want("a", record{A: "3"}, true)
	want("../a/b\x00", record{A: "2"}, true)
	if all, err := s.All(); err != nil || len(all) != 2 {
		t.Errorf("all are %+v, %v", all, err)
	}
	forget("a")
	want("a", record{}, false)
	want("../a/b\x00", record{A: "2"}, true)
	if all, err := s.All(); err != nil || len(all) != 1 || all[0].A != "2" {
		t.Errorf("all are %+v, %v", all, err)
	}
	if files, _ := os.ReadDir(s.Dir); len(files) != 1 {
		t.Errorf("%d files for one record", len(files))
	}
}

// What cannot be read is no record, or an error: never a wrong record.
func TestDamage(t *testing.T) {
	s := Store[record]{Dir: t.TempDir()}
	if err := s.Put("a", record{A: "1"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"A": 1}`, `{"A":"1","B":3}`} {
		if err := os.WriteFile(s.file("a"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, found, err := s.Get("a"); found || err != nil || !cmp.Equal(got, record{}) {
			t.Errorf("%q: %+v, %v, %v", text, got, found, err)
		}
		if all, err := s.All(); len(all) != 0 || err != nil {
			t.Errorf("%q: all are %+v, %v", text, all, err)
		}
	}
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.file("a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get("a"); err == nil || !strings.Contains(err.Error(), "read the record of a") {
		t.Errorf("a directory in its place: %v", err)
	}
	if err := s.Put("a", record{}); err == nil || !strings.Contains(err.Error(), "keep the record of a") {
		t.Errorf("a directory in its place: %v", err)
	}
	if files, _ := os.ReadDir(s.Dir); len(files) != 1 {
		t.Errorf("a failed Put left something: %v", files)
	}
}

func TestTogether(t *testing.T) {
	s := Store[record]{Dir: t.TempDir()}
	long := strings.Repeat("x", 1<<16)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := s.Put("a", record{A: long}); err != nil {
					t.Error(err)
				}
				if got, found, err := s.Get("a"); err != nil || !found || got.A != long {
					t.Errorf("found %v, %d bytes, %v", found, len(got.A), err)
				}
			}
		})
	}
	all.Wait()
}

package writelog

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestReads: of many reads at once one is on record, for each DPU and each log that is open.
func TestReads(t *testing.T) {
	dir := t.TempDir()
	path := ReadsPath(dir, "/x/vol.img")
	if got, err := Reads(path); err != nil || got != nil {
		t.Fatalf("with no log: %v, %v", got, err)
	}
	l, err := Open(dir, "/x/vol.img")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Reads(path); err != nil || got != nil {
		t.Fatalf("with no reads: %v, %v", got, err)
	}
	now := func() time.Duration {
		at, err := Now()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	begin := now()
	for range 1000 {
		for _, dpu := range []string{"dpu-1", "a name with spaces"} {
			if err := l.Read(dpu); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := now()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Reads(path)
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for i, a := range got {
		if a.Monotonic < begin || a.Monotonic > end {
			t.Errorf("record %d is of %s, and the reads were from %s to %s", i, a.Monotonic, begin, end)
		}
		if before, again := last[a.DPU]; again && a.Monotonic-got[before].Monotonic < ReadsApart {
			t.Errorf("records of %s at %s and %s", a.DPU, got[before].Monotonic, a.Monotonic)
		}
		last[a.DPU] = i
	}
	if len(last) != 2 || last["dpu-1"] < 0 {
		t.Errorf("readers %v", last)
	}
	if err := l.Read("dpu-2"); err == nil {
		t.Error("a read that cannot be recorded is no error")
	}
}

func TestReadsOfAnotherForm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for name, text := range map[string]string{
		"torn": "0000000000000000001 dpu-1", "no DPU": "0000000000000000001\n", "no time": "now dpu-1\n",
		"before the beginning": "-1 dpu-1\n", "a long name": "1 dpu 1\n", "an empty line": "1 dpu-1\n\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Reads(path); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

package snapemulator_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// A change of one function costs no system call for the others: a DPU has hundreds.
func TestUnchangedFunctionsAreNotWritten(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	one, two := expose(t, s, "one", "26:00.2", 1<<20), expose(t, s, "two", "26:00.3", 1<<20)
	state := func(n string) string {
		found, _ := filepath.Glob(filepath.Join(s.Options.SysfsRoot, "bus/pci/devices/*/nvme", n, "state"))
		if len(found) != 1 {
			t.Fatalf("states of %s: %q", n, found)
		}
		return found[0]
	}
	untouched, path := time.Unix(1, 0), state("nvme1")
	if err := os.Chtimes(path, untouched, untouched); err != nil {
		t.Fatal(err)
	}
	written := func() bool {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return !st.ModTime().Equal(untouched)
	}
	if err := s.NvmeControllerDestroy(t.Context(), two, true); err != nil {
		t.Fatal(err)
	}
	if written() {
		t.Error("the function that stays was written when another one went")
	}
	if err := s.NvmeControllerDetachNS(t.Context(), one, 1); err != nil {
		t.Fatal(err)
	}
	if !written() {
		t.Error("a function that lost its namespace was not written")
	}
}

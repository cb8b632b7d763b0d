package hostdev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	uuidA = "aaaaaaaa-0000-4000-8000-000000000001"
	uuidB = "BBBBBBBB-0000-4000-8000-000000000002"
)

// twoFunctions shows namespace 1 of 0000:30:00.0 and of 0000:31:00.0, with the
// UUIDs given.
func twoFunctions(t *testing.T, first, second string) *Finder {
	t.Helper()
	root := t.TempDir()
	put := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string][2]string{"nvme0": {"0000:30:00.0", first}, "nvme1": {"0000:31:00.0", second}} {
		ns := "sys/bus/pci/drivers/nvme/" + f[0] + "/nvme/" + name + "/" + name + "n1/"
		put(ns+"nsid", "1\n")
		put(ns+"size", "2048\n")
		put("dev/"+name+"n1", "")
		if f[1] != "" {
			put(ns+"uuid", f[1]+"\n")
		}
	}
	return &Finder{Roots: Roots{Sysfs: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}}
}

func TestSeek(t *testing.T) {
	at30 := func(uuid string) Identity { return Identity{Address: "30:00.0", NamespaceID: 1, UUID: uuid} }
	for name, c := range map[string]struct {
		first, second string
		id            Identity
		want          string // name of the disk, or words of the error
		err           error
	}{
		"at its place":                     {uuidA, uuidB, at30(uuidA), "nvme0n1", nil},
		"at its place, in other letters":   {strings.ToUpper(uuidA), uuidB, at30(uuidA), "nvme0n1", nil},
		"moved, its place is another's":    {uuidB, uuidA, at30(uuidA), "nvme1n1", nil},
		"moved, its place is gone":         {uuidB, uuidA, Identity{Address: "32:00.0", NamespaceID: 1, UUID: uuidA}, "nvme1n1", nil},
		"not there, its place another's":   {uuidB, "", at30(uuidA), "another volume's", ErrAbsent},
		"not there at all":                 {uuidB, "", Identity{Address: "32:00.0", NamespaceID: 1, UUID: uuidA}, "no namespace has UUID", ErrAbsent},
		"sysfs shows no UUID at the place": {"", uuidB, at30(uuidA), "nvme0n1", nil},
		"no UUID on record":                {uuidB, uuidA, at30(""), "nvme0n1", nil},
		"no address":                       {uuidA, uuidB, Identity{NamespaceID: 1, UUID: uuidA}, "want domain", ErrAddress},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := twoFunctions(t, c.first, c.second).Seek(c.id)
			switch {
			case c.err == nil && (err != nil || b.Name != c.want):
				t.Fatalf("got %+v, %v", b, err)
			case c.err != nil && (!errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("got %+v, %v", b, err)
			}
		})
	}
}

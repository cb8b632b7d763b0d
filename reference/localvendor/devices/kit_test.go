package devices

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor"
)

const kitMiB = 1 << 20

// vendor is a storage whose devices are tested, and its directory.
type vendor struct {
	*localvendor.Storage
	dir string
}

func (v vendor) path(name string) string { return filepath.Join(v.dir, name) }

func openVendor(t *testing.T, o localvendor.Options) vendor {
	t.Helper()
	o.TargetDir = t.TempDir()
	s, err := localvendor.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return vendor{s, o.TargetDir}
}

func imageSpec(name string) provisioner.VolumeSpec {
	return provisioner.VolumeSpec{
		Name: name, CapacityBytes: 4 * kitMiB, Mode: provisioner.Block,
		AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
	}
}

func makeVolume(t *testing.T, s vendor, v provisioner.VolumeSpec) provisioner.Volume {
	t.Helper()
	got, err := s.Create(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// attached makes and attaches a volume; as in a cluster, the device is asked
// for under a name of its own, that of the claim.
func attachedImage(t *testing.T, s vendor, name string) provisioner.OpenSpec {
	t.Helper()
	v := makeVolume(t, s, imageSpec(name))
	a, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "dpu-1"})
	if err != nil {
		t.Fatal(err)
	}
	return provisioner.OpenSpec{
		VolumeID: "claim-" + name, Mode: provisioner.Block,
		PublishContext: a.PublishContext, VolumeContext: v.Context,
	}
}

func wantOnlyFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
}

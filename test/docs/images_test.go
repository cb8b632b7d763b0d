package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// registry is where Moor's own images are.
const registry = "ghcr.io/moor-storage/"

// heldByImages is what deploy/image/images.yaml says.
type heldByImages struct {
	Images []struct {
		Name, Program string
		Paths, Calls  []string
	}
	Machines []string
}

func imageList(t *testing.T) heldByImages {
	t.Helper()
	var l heldByImages
	if err := yaml.Unmarshal([]byte(read(t, path("deploy", "image", "images.yaml"))), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestEachProgramHasAnImage: or it is listed as one of machines.
func TestEachProgramHasAnImage(t *testing.T) {
	l := imageList(t)
	listed := slices.Clone(l.Machines)
	for _, i := range l.Images {
		listed = append(listed, i.Program)
	}
	slices.Sort(listed)
	listed = slices.Compact(listed)
	want := []string{"moor-scheduler"}
	for _, directory := range []string{"cmd", "reference/cmd"} {
		found, err := os.ReadDir(path(directory))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			want = append(want, e.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("deploy/image/images.yaml has the programs %v, there are %v", listed, want)
	}
}

// called are the texts by which Moor's code starts programs of the machine.
var called = regexp.MustCompile(`(?:\.Run\((?:ctx|patient), |program: +)"([a-z0-9._]+)"`)

// byLibrary are those that k8s.io/mount-utils starts.
var byLibrary = []string{"mount", "umount"}

// TestImagesHaveWhatIsCalled: each program that code below internal/hostdev, pkg/node/csi or
// pkg/provisioner/remote starts is in the images of those that link it.
func TestImagesHaveWhatIsCalled(t *testing.T) {
	for image, directories := range map[string][]string{
		"snap-csi-plugin-node":      {"internal/hostdev", "pkg/node/csi"},
		"local-vendor":              {"internal/hostdev", "pkg/node/csi"},
		"storage-vendor-dpu-plugin": {"pkg/provisioner/remote"},
	} {
		want := slices.Clone(byLibrary)
		for _, directory := range directories {
			found, err := filepath.Glob(path(directory, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range found {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				for _, m := range called.FindAllStringSubmatch(read(t, file), -1) {
					want = append(want, m[1])
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for _, i := range imageList(t).Images {
			if i.Name != image {
				continue
			}
			var has []string
			for _, c := range i.Calls {
				// mount starts those of a file system itself, by the path.
				if name := filepath.Base(c); !strings.Contains(name, "mount.nfs") {
					has = append(has, name)
				}
			}
			slices.Sort(has)
			if !slices.Equal(has, want) {
				t.Errorf("image %s has %v, the code calls %v", image, has, want)
			}
		}
	}
}

// TestDPFPaths: the images have DPF's paths.
func TestDPFPaths(t *testing.T) {
	found := map[string]string{}
	for _, i := range imageList(t).Images {
		for _, place := range i.Paths {
			found[place] = i.Program
		}
	}
	for place, program := range dpfPaths {
		if found[place] != program {
			t.Errorf("%s is %q, not %s", place, found[place], program)
		}
	}
	if len(found) != len(dpfPaths) {
		t.Errorf("the images have the paths %v, want %d", found, len(dpfPaths))
	}
}

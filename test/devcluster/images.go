package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

const (
	// PauseImage is the sandbox image; containerd's configuration names it.
	PauseImage = "registry.k8s.io/pause:3.10.1"
	// BusyboxImage is the image for pods of tests, present on every node.
	BusyboxImage = "docker.io/library/busybox:local"
)

// busybox is where Debian's busybox-static puts its one static program.
const busybox = "/bin/busybox"

func imageFile(name string) string { return filepath.Join(layout.DataDir, "images", name+".tar") }

func imageFiles() []string { return []string{imageFile("pause"), imageFile("busybox")} }

func (c *Cluster) writeImages(ctx context.Context) error {
	pause, err := os.ReadFile(filepath.Join(c.meta.KubeBinDir, "pause"))
	if err != nil {
		return fmt.Errorf("make the pause image: %w", err)
	}
	err = writeImage("pause", ociimage.Image{
		Names:      []string{PauseImage},
		Entrypoint: []string{"/pause"},
		Files:      []ociimage.File{{Path: "/pause", Content: pause, Mode: 0o755}},
	})
	if err != nil {
		return err
	}
	files, err := BusyboxFiles(ctx)
	if err != nil {
		return err
	}
	return writeImage("busybox", ociimage.Image{Names: []string{BusyboxImage}, Command: []string{"sh"}, Files: files})
}

// LoadImage brings an image to every machine that runs pods, of a bed that is up.
func (c *Cluster) LoadImage(ctx context.Context, name string, image ociimage.Image) error {
	if err := writeImage(name, image); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, b := range c.kubelets() {
		g.Go(func() error { return c.importImage(ctx, b.name, imageFile(name)) })
	}
	return g.Wait()
}

// BusyboxFiles are the program and a link to it for every command it has.
func BusyboxFiles(ctx context.Context) ([]ociimage.File, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("make the busybox image: %w", err)
	}
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask busybox for its commands: %w", err)
	}
	files := []ociimage.File{{Path: busybox, Content: program, Mode: 0o755}}
	for _, command := range strings.Fields(string(list)) {
		if command != "busybox" {
			files = append(files, ociimage.File{Path: "/bin/" + command, Link: busybox})
		}
	}
	return files, nil
}

func writeImage(name string, image ociimage.Image) error {
	var content bytes.Buffer
	if err := ociimage.Write(&content, image); err != nil {
		return err
	}
	path := imageFile(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	return nil
}

// WithPrograms is an image's files with programs of this machine beside them, or in the place
// of its own, and the libraries that they are linked to; programs are by their place in the image.
func WithPrograms(ctx context.Context, files []ociimage.File, programs map[string]string) ([]ociimage.File, error) {
	copied := map[string]string{}
	for place, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("find this machine's %s: %w", program, err)
		}
		copied[place] = path
		list, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return nil, fmt.Errorf("list the libraries of %s: %w", path, err)
		}
		for _, library := range libraries(string(list)) {
			copied[library] = library
		}
	}
	out := slices.DeleteFunc(slices.Clone(files), func(f ociimage.File) bool { return copied[f.Path] != "" })
	for place, path := range copied {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("copy %s: %w", path, err)
		}
		out = append(out, ociimage.File{Path: place, Content: content, Mode: 0o755})
	}
	slices.SortFunc(out, func(a, b ociimage.File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Tree is the files and links of a directory of this machine, for the same place in an image,
// but for those whose path is refused.
func Tree(directory string, refused func(path string) bool) ([]ociimage.File, error) {
	var out []ociimage.File
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || refused(path) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := ociimage.File{Path: path, Mode: int64(info.Mode().Perm())}
		if info.Mode().IsRegular() {
			f.Content, err = os.ReadFile(path)
		} else {
			f.Link, err = os.Readlink(path)
		}
		out = append(out, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("copy directory %s: %w", directory, err)
	}
	return out, nil
}

// libraries finds the paths in what ldd prints.
func libraries(list string) []string {
	var out []string
	for _, word := range strings.Fields(list) {
		if strings.HasPrefix(word, "/") {
			out = append(out, word)
		}
	}
	return out
}

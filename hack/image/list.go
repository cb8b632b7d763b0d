package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// ListFile says what each image holds, from the root of the checkout.
const ListFile = "deploy/image/images.yaml"

// List is what ListFile says.
type List struct {
	Images []Image `json:"images"`
	// Machines are the programs that are in no image.
	Machines []string `json:"machines"`
}

// Image is what one image holds. Paths are those in the image.
type Image struct {
	Name string `json:"name"`
	// Program is Moor's own.
	Program string `json:"program"`
	// Paths are links to the program.
	Paths []string `json:"paths"`
	// Calls are programs of Debian that it calls, and Files what those read.
	Calls []string `json:"calls"`
	Files []string `json:"files"`
	// Packages of Debian have all of that.
	Packages []string `json:"packages"`
}

// ReadList reads the list of a checkout.
func ReadList(checkout string) (List, error) {
	var l List
	text, err := os.ReadFile(filepath.Join(checkout, ListFile))
	if err != nil {
		return l, fmt.Errorf("read the list of images: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, &l); err != nil {
		return l, fmt.Errorf("read %s: %w", ListFile, err)
	}
	if err := l.check(); err != nil {
		return l, fmt.Errorf("read %s: %w", ListFile, err)
	}
	return l, nil
}

func (l List) check() error {
	if len(l.Images) == 0 {
		return errors.New("it has no image")
	}
	seen := map[string]bool{}
	for _, i := range l.Images {
		switch {
		case i.Name == "" || i.Program == "":
			return fmt.Errorf("image %q with program %q: both are needed", i.Name, i.Program)
		case seen[i.Name]:
			return fmt.Errorf("there are two images %s", i.Name)
		case (len(i.Calls)+len(i.Files) > 0) != (len(i.Packages) > 0):
			return fmt.Errorf("image %s: packages are for what it calls, and the other way round", i.Name)
		}
		seen[i.Name] = true
		for _, path := range slices.Concat(i.Paths, i.Calls, i.Files) {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				return fmt.Errorf("image %s: %s is no clean path from the root", i.Name, path)
			}
		}
	}
	return nil
}

// Packages are those of all images.
func (l List) Packages() []string {
	var out []string
	for _, i := range l.Images {
		out = append(out, i.Packages...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// size is that of an image in bytes: of its files, and of its layer as a registry has it.
type size struct{ unpacked, packed int64 }

// largest is how many bytes an image may have that holds a program alone. A program twice as large
// as it was has begun to link what calls methods by name: see hack/build.sh.
const largest = 60_000_000

// Sizes prints how large the images are, and writes it into the page, if there is one. It fails if
// one is too large.
func Sizes(list List, m Maker, arch, page string) error {
	var errs []error
	rows := fmt.Sprintf("| Image, %s | MB in a registry | MB unpacked |\n|---|---|---|\n", arch)
	for _, i := range list.Images {
		s, err := sizeOf(m.Tree(i.Name))
		if err != nil {
			return fmt.Errorf("measure image %s: %w", i.Name, err)
		}
		rows += fmt.Sprintf("| %s | %.1f | %.1f |\n", i.Name, float64(s.packed)/1e6, float64(s.unpacked)/1e6)
		if len(i.Packages) == 0 && s.unpacked > largest {
			errs = append(errs, fmt.Errorf("image %s has %.1f MB, of %d at most", i.Name, float64(s.unpacked)/1e6, largest/1_000_000))
		}
	}
	fmt.Print(rows)
	if page != "" {
		errs = append(errs, writeSizes(page, arch, rows))
	}
	return errors.Join(errs...)
}

func writeSizes(page, arch, rows string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("write sizes: %w", err)
	}
	written, err := Written(string(text), "sizes "+arch, rows)
	if err != nil {
		return fmt.Errorf("write sizes into %s: %w", page, err)
	}
	return os.WriteFile(page, []byte(written), 0o644)
}

// Written is a page with other text between the comments that begin and end a part of it.
func Written(page, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	head, rest, found := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("it has no part between %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return head + begin + text + end + tail, nil
}

func sizeOf(root string) (size, error) {
	var s size
	packed := gzip.NewWriter(counter{&s.packed})
	layer := tar.NewWriter(packed)
	err := filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := e.Info(); err != nil {
			return err
		} else if info.Mode().IsRegular() {
			s.unpacked += info.Size()
		}
		return nil
	})
	if err == nil {
		err = layer.AddFS(os.DirFS(root))
	}
	if err == nil {
		err = layer.Close()
	}
	if err == nil {
		err = packed.Close()
	}
	return s, err
}

// counter counts what is written to it.
type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return len(p), nil
}

// Package ociimage writes container images, as tar files in the OCI image
// layout that "ctr images import" reads, from files of this machine. The bed
// has no registry to pull from.
package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"
)

const (
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
	// annotationName is where containerd looks for the full name of an image.
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// File is a file or, if Link is set, a symbolic link in an image. Directories
// above it are made.
type File struct {
	Path    string
	Content []byte
	Link    string
	Mode    int64
}

// Image is what Write writes. The same Image gives the same bytes.
type Image struct {
	// Names are full references, with registry and tag.
	Names      []string
	Entrypoint []string
	Command    []string
	// StopSignal is the name of the signal that asks the program to end, by default SIGTERM.
	StopSignal string
	// User runs the program, by default root: user:group.
	User string
	// Bare images have the Files alone, without the directories and the users that nearly every
	// program expects.
	Bare  bool
	Files []File
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

func describe(media string, blob []byte) descriptor {
	return descriptor{MediaType: media, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(blob)), Size: len(blob)}
}

// Write writes the image as a tar file.
func Write(w io.Writer, image Image) error {
	layer, err := layerOf(image.Files, image.Bare)
	if err != nil {
		return fmt.Errorf("make the layer of image %v: %w", image.Names, err)
	}
	config, manifest, index, err := documents(image, layer)
	if err != nil {
		return fmt.Errorf("describe image %v: %w", image.Names, err)
	}
	out := tar.NewWriter(w)
	parts := []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{blobName(layer), layer},
		{blobName(config), config},
		{blobName(manifest), manifest},
	}
	for _, p := range parts {
		if err := putFile(out, p.name, 0o644, p.content); err != nil {
			return fmt.Errorf("write image %v: %w", image.Names, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write image %v: %w", image.Names, err)
	}
	return nil
}

func blobName(blob []byte) string { return fmt.Sprintf("blobs/sha256/%x", sha256.Sum256(blob)) }

func documents(image Image, layer []byte) (config, manifest, index []byte, err error) {
	platform := map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	config, err = json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Entrypoint": image.Entrypoint, "Cmd": image.Command, "WorkingDir": "/", "StopSignal": image.StopSignal, "User": image.User,
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{describe(mediaLayer, layer).Digest}},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest,
		"config": describe(mediaConfig, config),
		"layers": []descriptor{describe(mediaLayer, layer)},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	manifests := make([]descriptor, 0, len(image.Names))
	for _, name := range image.Names {
		d := describe(mediaManifest, manifest)
		d.Platform = platform
		d.Annotations = map[string]string{annotationName: name, annotationRef: name[strings.LastIndex(name, ":")+1:]}
		manifests = append(manifests, d)
	}
	index, err = json.Marshal(map[string]any{"schemaVersion": 2, "manifests": manifests})
	return config, manifest, index, err
}

// layerWriter keeps the first error, after which it does nothing.
type layerWriter struct {
	tar  *tar.Writer
	made map[string]bool
	err  error
}

// layerOf makes a root file system of the files, unless it is to be bare with the directories and
// the users that nearly every program expects.
func layerOf(files []File, bare bool) ([]byte, error) {
	var buffer bytes.Buffer
	l := layerWriter{tar: tar.NewWriter(&buffer), made: map[string]bool{}}
	if !bare {
		l.expected()
	}
	for _, f := range files {
		l.file(f)
	}
	if l.err == nil {
		l.err = l.tar.Close()
	}
	return buffer.Bytes(), l.err
}

// expected writes what nearly every program expects.
func (l *layerWriter) expected() {
	l.directory("tmp", 0o1777)
	for _, dir := range []string{"bin", "dev", "etc", "home", "mnt", "proc", "root", "sys", "usr/bin", "var/tmp"} {
		l.directory(dir, 0o755)
	}
	l.file(File{Path: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")})
	l.file(File{Path: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nnobody:x:65534:\n")})
}

func (l *layerWriter) directory(dir string, mode int64) {
	current := ""
	for _, part := range strings.Split(strings.Trim(dir, "/"), "/") {
		current = path.Join(current, part)
		if current == "." || current == "" || l.made[current] || l.err != nil {
			continue
		}
		l.made[current] = true
		l.err = l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: current + "/", Mode: mode})
	}
}

func (l *layerWriter) file(f File) {
	name := strings.Trim(f.Path, "/")
	l.directory(path.Dir(name), 0o755)
	if l.err != nil {
		return
	}
	if f.Link != "" {
		l.err = l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: f.Link, Mode: 0o777})
		return
	}
	l.err = putFile(l.tar, name, f.Mode, f.Content)
}

func putFile(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

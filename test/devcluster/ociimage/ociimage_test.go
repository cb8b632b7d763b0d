package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
)

func readTar(t *testing.T, content []byte) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	files, headers := map[string][]byte{}, map[string]*tar.Header{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		if headers[h.Name] != nil {
			t.Errorf("%s is in the tar twice", h.Name)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], headers[h.Name] = b, h
	}
}

func decode[T any](t *testing.T, content []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(content, &v); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	return v
}

var sample = Image{
	Names:      []string{"registry.example/a:1", "registry.example:5000/b:2"},
	Entrypoint: []string{"/bin/a"},
	StopSignal: "SIGINT",
	User:       "7:8",
	Files: []File{
		{Path: "/bin/a", Content: []byte("program"), Mode: 0o755},
		{Path: "/opt/deep/link", Link: "/bin/a"},
	},
}

func TestEveryBlobHasTheNameOfItsDigest(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, sample); err != nil {
		t.Fatal(err)
	}
	files, _ := readTar(t, out.Bytes())
	index := decode[struct{ Manifests []descriptor }](t, files["index.json"])
	if len(index.Manifests) != 2 {
		t.Fatalf("%d manifests, want one for each name", len(index.Manifests))
	}
	for i, m := range index.Manifests {
		if got := m.Annotations[annotationName]; got != sample.Names[i] {
			t.Errorf("name %q, want %q", got, sample.Names[i])
		}
		if got, want := m.Annotations[annotationRef], fmt.Sprint(i+1); got != want {
			t.Errorf("tag %q, want %q", got, want)
		}
		manifest := decode[struct {
			Config descriptor
			Layers []descriptor
		}](t, blob(t, files, m))
		config := decode[struct {
			Config struct{ StopSignal, User string }
		}](t, blob(t, files, manifest.Config))
		if config.Config.StopSignal != sample.StopSignal || config.Config.User != sample.User {
			t.Errorf("the program is asked to end by %q, want %q", config.Config.StopSignal, sample.StopSignal)
		}
		blob(t, files, manifest.Layers[0])
	}
}

func blob(t *testing.T, files map[string][]byte, d descriptor) []byte {
	t.Helper()
	content, ok := files["blobs/sha256/"+d.Digest[len("sha256:"):]]
	if !ok {
		t.Fatalf("no blob %s", d.Digest)
	}
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != d.Digest || len(content) != d.Size {
		t.Errorf("blob has digest %s and %d bytes, the descriptor says %s and %d", got, len(content), d.Digest, d.Size)
	}
	return content
}

func TestLayerHoldsTheFiles(t *testing.T) {
	layer, err := layerOf(sample.Files, false)
	if err != nil {
		t.Fatal(err)
	}
	files, headers := readTar(t, layer)
	if string(files["bin/a"]) != "program" || headers["bin/a"].Mode != 0o755 {
		t.Errorf("bin/a is %q with mode %o", files["bin/a"], headers["bin/a"].Mode)
	}
	if h := headers["opt/deep/link"]; h == nil || h.Linkname != "/bin/a" {
		t.Errorf("opt/deep/link is %+v", h)
	}
	if headers["opt/deep/"] == nil || headers["tmp/"].Mode != 0o1777 {
		t.Error("a directory is missing or has the wrong mode")
	}
}

func TestTheSameImageGivesTheSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	if err := errors.Join(Write(&a, sample), Write(&b, sample)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two writes of one image differ")
	}
}

// TestBareLayerHoldsTheFilesAlone: nothing that the image was not given.
func TestBareLayerHoldsTheFilesAlone(t *testing.T) {
	layer, err := layerOf(sample.Files, true)
	if err != nil {
		t.Fatal(err)
	}
	_, headers := readTar(t, layer)
	got := slices.Sorted(maps.Keys(headers))
	if want := []string{"bin/", "bin/a", "opt/", "opt/deep/", "opt/deep/link"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

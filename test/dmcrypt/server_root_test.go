//go:build root

package dmcrypt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moor-storage/moor/reference/loopdev"
)

// sectorSizes are those that LUKS2 has.
var sectorSizes = []int64{512, 4096}

// TestMapping: a device that cryptsetup(8) has formatted is mapped with the key and the offset that it tells,
// keeps what is written in plain text over another mapping, and has none of that text in it.
func TestMapping(t *testing.T) {
	for _, size := range sectorSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) { maps(t, size) })
	}
}

func maps(t *testing.T, sectorSize int64) {
	dir := t.TempDir()
	image, passphrase := filepath.Join(dir, "image"), filepath.Join(dir, "passphrase")
	if err := os.WriteFile(passphrase, []byte("open it"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "truncate", "-s", "20M", image)
	run(t, "cryptsetup", "-q", "luksFormat", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--sector-size", fmt.Sprint(sectorSize), image, passphrase)
	keyFile := filepath.Join(dir, "key")
	run(t, "cryptsetup", "-q", "luksDump", "--dump-volume-key", "--volume-key-file", keyFile, "--key-file", passphrase, image)
	key, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	var header struct {
		Segments map[string]struct {
			Offset     int64 `json:",string"`
			Encryption string
			SectorSize int64 `json:"sector_size"`
		}
	}
	if err := json.Unmarshal(run(t, "cryptsetup", "luksDump", "--dump-json-metadata", image), &header); err != nil {
		t.Fatal(err)
	}
	segment := header.Segments["0"]
	if segment.Encryption != "aes-xts-plain64" || segment.SectorSize != sectorSize {
		t.Fatalf("the cipher is %q, the sectors have %d bytes", segment.Encryption, segment.SectorSize)
	}
	below, err := loopdev.Attach(image, "dmcrypt-test", loopdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	below.Release()
	t.Cleanup(func() {
		if err := below.Detach(); err != nil {
			t.Error(err)
		}
	})

	s := New(dir)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	open := fmt.Sprintf("%s/open?name=a&device=%s&offset=%d&sector=%d", web.URL, below.Number(), segment.Offset, segment.SectorSize)
	hexKey := fmt.Sprintf("%x\n", key)
	plain := deviceOf(t, dir, post(t, open, hexKey, http.StatusOK))
	post(t, open, hexKey, http.StatusConflict)
	text := bytes.Repeat([]byte("no plain text at the medium, "), 4096)
	at := 3*sectorSize - 7 // whole sectors and parts of two
	write(t, plain, text, at)
	post(t, web.URL+"/close?name=a", "", http.StatusOK)
	post(t, web.URL+"/close?name=a", "", http.StatusNotFound)

	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("plain text")) || bytes.Equal(content[segment.Offset:segment.Offset+1<<16], make([]byte, 1<<16)) {
		t.Error("what was written is in the image as it is, or not at all")
	}
	again := deviceOf(t, dir, post(t, open, hexKey, http.StatusOK))
	got := make([]byte, len(text))
	size := read(t, again, got, at)
	if !bytes.Equal(got, text) || size != 20<<20-segment.Offset {
		t.Errorf("%d bytes are there, and other text", size)
	}
	hexKey = strings.Repeat("00", len(key))
	wrong := deviceOf(t, dir, post(t, strings.Replace(open, "name=a", "name=b", 1), hexKey, http.StatusOK))
	read(t, wrong, got, at)
	if bytes.Equal(got, text) {
		t.Error("another key gives the same text")
	}
}

// TestRefused: what cannot be mapped is told, and nothing is left of it.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	for _, tt := range []struct {
		name, query, key string
		want             int
	}{
		{"no device", "name=a&offset=0&sector=512", strings.Repeat("00", 64), http.StatusBadRequest},
		{"no key", "name=a&device=7:0&offset=0&sector=512", "key", http.StatusBadRequest},
		{"no name", "device=7:0&offset=0&sector=512", strings.Repeat("00", 64), http.StatusConflict},
		{"a key of no length", "name=a&device=7:0&offset=0&sector=512", "00", http.StatusInternalServerError},
		{"a device that there is not", "name=a&device=259:1048575&offset=0&sector=512", strings.Repeat("00", 64), http.StatusInternalServerError},
	} {
		post(t, web.URL+"/open?"+tt.query, tt.key, tt.want)
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 || len(s.mappings) != 0 {
			t.Errorf("%s: %v is left, error %v", tt.name, left, err)
		}
	}
}

func run(t *testing.T, words ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).Output()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return out
}

func post(t *testing.T, url, body string, status int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		t.Fatalf("POST %s: %s: %s: %v", url, answer.Status, text, err)
	}
	return string(text)
}

// deviceOf makes a node of a device by its numbers.
func deviceOf(t *testing.T, dir, number string) string {
	t.Helper()
	major, minor, _ := strings.Cut(number, ":")
	path := filepath.Join(dir, "plain-"+minor)
	if _, err := os.Stat(path); err != nil {
		run(t, "mknod", path, "b", major, minor)
	}
	return path
}

func write(t *testing.T, device string, text []byte, at int64) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(text, at); err != nil {
		t.Error(err)
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// read fills p, and returns the size of the device.
func read(t *testing.T, device string, p []byte, at int64) int64 {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.ReadAt(p, at); err != nil {
		t.Error(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Error(err)
	}
	return size
}

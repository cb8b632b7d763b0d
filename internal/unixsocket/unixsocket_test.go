package unixsocket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	first.SetUnlinkOnClose(false) // as a process that was killed leaves it
	if _, err := Listen(path); !errors.Is(err, ErrServed) {
		t.Errorf("a served socket was taken: %v", err)
	}
	_ = first.Close()
	second, err := Listen(path)
	if err != nil {
		t.Fatalf("a stale socket was not replaced: %v", err)
	}
	_ = second.Close()
}

func TestForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrForeign) {
		t.Errorf("a plain file in the way: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file was touched: %q, %v", text, err)
	}
}

func TestCheckPath(t *testing.T) {
	for n, ok := range map[int]bool{107: true, 108: false} {
		if err := CheckPath(strings.Repeat("a", n)); (err == nil) != ok {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := Listen(strings.Repeat("a", 108)); err == nil || !strings.Contains(err.Error(), "108 bytes, the kernel allows 107") {
		t.Errorf("too long: %v", err)
	}
}

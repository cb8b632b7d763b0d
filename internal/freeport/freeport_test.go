package freeport

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestAddress: no outgoing connection can take what was given, and it can be
// listened on.
func TestAddress(t *testing.T) {
	first, err := end(rangeFile)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 100 {
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || port < lowest || port >= first {
			t.Fatalf("%s is not of [%d, %d) (%v): a connection may take it before its server does", address, lowest, first, err)
		}
		if seen[address] {
			t.Fatalf("%s was given twice", address)
		}
		seen[address] = true
	}
	for address := range seen {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEnd(t *testing.T) {
	tests := map[string]struct {
		text string
		want int
		err  bool
	}{
		"Linux' default":          {text: "32768\t60999\n", want: 32768},
		"moved":                   {text: "15000\t65535\n", want: 15000},
		"nothing below is left":   {text: "1024\t65535\n", err: true},
		"not what the kernel has": {text: "many\n", err: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "range")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := end(file); got != test.want || (err != nil) != test.err {
				t.Errorf("%d, %v; want %d", got, err, test.want)
			}
		})
	}
	if got, err := end(filepath.Join(t.TempDir(), "absent")); got != defaultEnd || err != nil {
		t.Errorf("a system without the file: %d, %v", got, err)
	}
}

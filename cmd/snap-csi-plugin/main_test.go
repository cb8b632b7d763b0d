package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moor-storage/moor/pkg/csiserver"
)

// TestAbsolute: DPF's chart gives an address below the working directory.
func TestAbsolute(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]string{
		"unix://csi/csi.sock":  "unix://" + filepath.Join(here, "csi/csi.sock"),
		"unix://csi.sock":      "unix://" + filepath.Join(here, "csi.sock"),
		"unix:///csi/csi.sock": "unix:///csi/csi.sock",
		"tcp://0.0.0.0:9000":   "tcp://0.0.0.0:9000",
		"unix://":              "unix://",
		"http://x":             "http://x",
	} {
		got, err := absolute(endpoint)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", endpoint, got, err, want)
		}
		if _, _, err := csiserver.ParseEndpoint(got); (err == nil) != (strings.Contains(want, "sock") || strings.Contains(want, "tcp")) {
			t.Errorf("%s: %v", got, err)
		}
	}
}

// TestEmulationMode: a mode that no driver has is refused before anything is connected.
func TestEmulationMode(t *testing.T) {
	var o options
	o.mode, o.driver.Emulation, o.api.QPS, o.api.Burst = "node", "9p", 1, 1
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--emulation-mode") {
		t.Errorf("%v", err)
	}
}

// TestDeviceRecords: what a restart has to know is kept beside the socket, which is in a directory of the
// host's, unless another place is named.
func TestDeviceRecords(t *testing.T) {
	for _, c := range []struct{ bind, flag, want string }{
		{"unix:///csi/csi.sock", "", "/csi/devices"},
		{"/csi/csi.sock", "/run/x", "/run/x"},
		{"tcp://localhost:1", "", ""},
		{"tcp://localhost:1", "/run/x", "/run/x"},
	} {
		o := options{bindAddress: c.bind, node: nodeOptions{records: c.flag}}
		if got, err := o.deviceRecords(); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	o := options{bindAddress: "csi.sock"}
	if got, err := o.deviceRecords(); err == nil {
		t.Errorf("of no endpoint: %q", got)
	}
}

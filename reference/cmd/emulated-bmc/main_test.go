package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
)

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o, fs := &options{}, pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.bind(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPower: a process of its own switches a machine, which is a file here, by commands,
// and lies once its control says so.
func TestPower(t *testing.T) {
	dir := t.TempDir()
	machine, ca, control := filepath.Join(dir, "on"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "control.sock")
	for path, text := range map[string]string{machine: "", filepath.Join(dir, "password"): "secret\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(dir, "state")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ -e "+machine+" ] && echo On || echo Off\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	o := parse(t, "--listen="+address, "--control="+control, "--serial-number=S1", "--password-file="+filepath.Join(dir, "password"), "--ca-file="+ca,
		"--power-off-command=rm -f "+machine, "--power-on-command=touch "+machine, "--state-command="+script)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	b := connect(t, "https://"+address, ca)
	if err := b.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, b, power.StateOff)
	if _, err := os.Stat(machine); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the machine is not off: %v", err)
	}
	tell(t, control, "accepts", http.StatusOK)
	if err := b.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell(t, control, "no such lie", http.StatusBadRequest)
	if r, err := b.Read(t.Context()); err != nil || r.System != power.StateOff {
		t.Errorf("it accepts and does nothing, and yet %+v, %v", r, err)
	}
	tell(t, control, "", http.StatusOK)
	if err := b.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, b, power.StateOn)
}

// connect waits until the process listens.
func connect(t *testing.T, endpoint, caFile string) *redfish.BMC {
	t.Helper()
	for {
		ca, err := os.ReadFile(caFile)
		if err == nil {
			b, err := redfish.New(redfish.Config{Endpoint: endpoint, Want: power.Identity{SerialNumber: "S1"}, Username: "root", Password: "secret", CA: ca})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = b.Read(t.Context()); err == nil {
				return b
			} else if !errors.Is(err, power.ErrUnreachable) {
				t.Fatal(err)
			}
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func await(t *testing.T, b *redfish.BMC, want power.State) {
	t.Helper()
	for {
		r, err := b.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.System == want {
			return
		}
	}
}

// tell has the BMC lie.
func tell(t *testing.T, socket, lie string, want int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://bmc/lie", strings.NewReader(lie))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		t.Errorf("lie %q: status %d, want %d: %s", lie, resp.StatusCode, want, text)
	}
}

// TestRefuses: what it cannot work without is asked for by name.
func TestRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := func(password string, more ...string) []string {
		return append([]string{"--serial-number=S1", "--password-file=" + password, "--power-off-command=a", "--power-on-command=b", "--state-command=c"}, more...)
	}
	for words, args := range map[string][]string{
		"--serial-number is required":              full(empty, "--serial-number="),
		"--state-command is required":              full(empty, "--state-command= "),
		"read --password-file":                     full("/nowhere"),
		" is empty":                                full(empty),
		"--tls-cert-file or --ca-file is required": full("/proc/version"),
		"read --tls-cert-file":                     full("/proc/version", "--tls-cert-file=/nowhere"),
		"write --ca-file":                          full("/proc/version", "--ca-file=/nowhere/ca"),
	} {
		if err := parse(t, args...).run(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", args, err, words)
		}
	}
}

// TestCommands: a command that does not run, or says something else, says nothing of the
// machine; and each of several is run.
func TestCommands(t *testing.T) {
	for command, want := range map[string]struct {
		on, fails bool
	}{"echo On": {on: true}, "echo Off": {}, "echo off": {fails: true}, "true": {fails: true}, "false": {fails: true}, "/nowhere": {fails: true}, " ": {fails: true}} {
		on, err := commands{state: command}.IsOn(t.Context())
		if on != want.on || (err != nil) != want.fails {
			t.Errorf("%s: %v, %v, want %+v", command, on, err, want)
		}
	}
	made := filepath.Join(t.TempDir(), "made")
	if err := (commands{on: []string{"false", "touch " + made}}).PowerOn(t.Context()); err == nil {
		t.Error("a command that fails is passed over")
	}
	if err := (commands{off: []string{"rm " + made, "true"}}).PowerOff(t.Context()); err != nil {
		t.Errorf("the second command was not run: %v", err)
	}
}

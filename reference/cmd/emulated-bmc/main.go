// Command emulated-bmc is the BMC of one machine of the test bed: a Redfish service that
// switches the machine off and on by commands, and that lies when a test says so.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/reference/bmc"
)

// options are the flags.
type options struct {
	bmc.Options
	listen, control, passwordFile, metrics string
	certFile, keyFile, caFile              string
	off, on                                []string
	state                                  string
}

func main() {
	var o options
	daemon.Main("emulated-bmc", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.listen, "listen", ":8443", "address of the Redfish service, which is HTTPS")
	fs.StringVar(&o.control, "control", "/run/moor/emulated-bmc/control.sock", "unix socket by which a test has it lie; at most 107 bytes")
	fs.StringVar(&o.SystemID, "system-id", "1", "id of the machine in the collection of systems, such as Bluefield")
	fs.StringVar(&o.SerialNumber, "serial-number", "", "serial number of the machine; required")
	fs.StringVar(&o.UUID, "uuid", "", "UUID of the machine; empty: it says none")
	fs.StringVar(&o.User, "user", "root", "user that may do all")
	fs.StringVar(&o.passwordFile, "password-file", "", "file with the user's password; required")
	fs.StringVar(&o.RestorePolicy, "restore-policy", "AlwaysOff", "what it says that the machine does when its mains come back")
	fs.DurationVar(&o.BootTime, "boot-time", 10*time.Second, "for how long it says that a machine boots which came out of a reset")
	fs.StringVar(&o.certFile, "tls-cert-file", "", "certificate of the service; empty: it makes one for this run")
	fs.StringVar(&o.keyFile, "tls-private-key-file", "", "key of the certificate")
	fs.StringVar(&o.caFile, "ca-file", "", "file into which a certificate is written that it makes; required then")
	fs.StringArrayVar(&o.off, "power-off-command", nil, "command that takes the power from the machine, without a shell; given several times, each in its order; required")
	fs.StringArrayVar(&o.on, "power-on-command", nil, "command that gives it power; given several times, each in its order; required")
	fs.StringVar(&o.state, "state-command", "", "command that prints On if the machine has power, and Off if it has none; required")
	fs.StringVar(&o.metrics, "metrics-bind-address", "0", "address of /metrics, /healthz and /readyz; 0 serves none")
}

func (o *options) run(ctx context.Context) error {
	password, err := o.read()
	if err != nil {
		return err
	}
	config, err := o.tls()
	if err != nil {
		return err
	}
	o.Password, o.Machine = password, commands{off: o.off, on: o.on, state: o.state}
	o.Failed = func(err error) { log.Log.Error(err, "what was accepted failed") }
	server := bmc.New(o.Options)
	defer server.Wait()
	control, err := unixsocket.Listen(o.control)
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", o.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for Redfish: %w", err), control.Close())
	}
	log.Log.Info("serving", "serialNumber", o.SerialNumber, "address", plain.Addr().String(), "control", o.control)
	return daemon.Beside(ctx, o.metrics, prometheus.NewRegistry(), nil, func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, control, server.Control()) }()
		err := serve(ctx, tls.NewListener(plain, config), server.Handler())
		return errors.Join(err, <-ended)
	})
}

// read checks the flags, and is the password.
func (o *options) read() (string, error) {
	for name, value := range map[string]string{
		"serial-number": o.SerialNumber, "password-file": o.passwordFile,
		"power-off-command": strings.Join(o.off, ""), "power-on-command": strings.Join(o.on, ""), "state-command": o.state,
	} {
		if strings.TrimSpace(value) == "" {
			return "", fmt.Errorf("--%s is required", name)
		}
	}
	raw, err := os.ReadFile(o.passwordFile)
	if err != nil {
		return "", fmt.Errorf("read --password-file: %w", err)
	}
	password := strings.TrimSpace(string(raw))
	if password == "" {
		return "", fmt.Errorf("--password-file %s is empty", o.passwordFile)
	}
	return password, nil
}

// serve answers at a listener until ctx ends; the calls of clients end with it.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", l.Addr(), err)
	}
	return nil
}

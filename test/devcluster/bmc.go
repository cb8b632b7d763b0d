package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// BMC stands in for the BMC of a machine: a process of its own, outside of all machines as
// hardware is, which switches the machine off and on really.
type BMC struct {
	// Address of its Redfish service, which all machines reach.
	Address string
	// SerialNumber of the machine, and the credentials.
	SerialNumber, User, Password string
	// CA is its certificate in PEM.
	CA []byte

	control string
	stop    func() error
}

// bmcPorts is the first port of the BMCs, two for each pair.
const bmcPorts = 9440

// BMC gives a machine one, for as long as this process lives or until Stop. With it go those
// machines that have their power from it.
func (c *Cluster) BMC(ctx context.Context, machine string, with ...string) (*BMC, error) {
	box, err := c.boxOf(machine)
	if err != nil {
		return nil, err
	}
	port := bmcPorts + 2*box.index
	if box.isHost() {
		port++
	}
	file := func(kind string) string { return filepath.Join(layout.StateDir, "bmc-"+machine+"."+kind) }
	address := net.JoinHostPort(layout.RootIP, fmt.Sprint(port))
	b := &BMC{Address: "https://" + address, SerialNumber: "bed-" + machine, User: "root", Password: "bed-" + machine + "-password", control: file("sock")}
	if err := os.WriteFile(file("password"), []byte(b.Password), 0o600); err != nil {
		return nil, fmt.Errorf("write the password of the BMC of %s: %w", machine, err)
	}
	program := filepath.Join(c.meta.BinDir, "moor-dev")
	args := []string{
		"--listen=" + address, "--control=" + b.control, "--serial-number=" + b.SerialNumber, "--password-file=" + file("password"), "--ca-file=" + file("pem"),
		"--state-command=" + program + " power-state " + machine,
	}
	// A card goes first: the link of its host would wait for the I/O that it has under way.
	for _, m := range append(slices.Clone(with), machine) {
		args = append(args, "--power-off-command="+program+" power-off "+m, "--power-on-command="+program+" power-on "+m)
	}
	if b.stop, err = c.runBMC(machine, args); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = poll(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) { return b.Lie(ctx, "") == nil, nil })
	if err == nil {
		b.CA, err = os.ReadFile(file("pem"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the BMC of %s: %w\n%s", machine, err, tail(c.Log("bmc-"+machine), 10)), b.Stop())
	}
	return b, nil
}

// Record is what an installer creates in the host cluster to have a host switched off by its
// BMC, from which its card has all of its power: a PowerControl and its Secret.
func (b *BMC) Record(host, namespace string, on moorv1alpha1.PowerOnPolicy) []client.Object {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc-" + host}, Data: map[string][]byte{
		"username": []byte(b.User), "password": []byte(b.Password), "ca.crt": b.CA,
	}}
	control := &moorv1alpha1.PowerControl{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: host}}
	control.Spec = moorv1alpha1.PowerControlSpec{
		Host:     &moorv1alpha1.BMC{Address: b.Address, SerialNumber: b.SerialNumber, SecretName: secret.Name},
		DPUPower: moorv1alpha1.DPUPowerHost, PowerOn: on,
	}
	return []client.Object{secret, control}
}

// runBMC starts the process, and returns how it is ended. It is not of the session of this
// process, so that an interrupt reaches it by Stop alone.
func (c *Cluster) runBMC(machine string, args []string) (stop func() error, err error) {
	log, err := os.OpenFile(c.Log("bmc-"+machine), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of the BMC of %s: %w", machine, err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.meta.BinDir, "emulated-bmc"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the BMC of %s: %w", machine, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("end the BMC of %s: %w", machine, err)
		}
		return <-ended
	}, nil
}

// Lie has it tell a lie of reference/bmc from now on; "" for the truth.
func (b *BMC) Lie(ctx context.Context, lie string) error {
	_, err := b.call(ctx, http.MethodPut, "/lie", lie)
	return err
}

// Resets are what it was asked for since it started.
func (b *BMC) Resets(ctx context.Context) ([]string, error) {
	text, err := b.call(ctx, http.MethodGet, "/resets", "")
	return strings.Fields(text), err
}

// Stop ends it, once what it has accepted is done.
func (b *BMC) Stop() error { return b.stop() }

func (b *BMC) call(ctx context.Context, method, path, body string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.control)
	}}}
	r, err := http.NewRequestWithContext(ctx, method, "http://bmc"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", fmt.Errorf("%s %s of a BMC: %w", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s of a BMC: HTTP status %d: %s", method, path, resp.StatusCode, text)
	}
	return string(text), err
}

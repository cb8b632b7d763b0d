package registrar

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubelet starts Run and connects to it as the kubelet does.
func kubelet(t *testing.T) (client registerapi.RegistrationClient, socket string, stop func() error) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Driver: "csi.example.com", Endpoint: "unix:///run/csi.sock", Directory: dir, Logger: logr.Discard()})
	}()
	socket = SocketPath(dir, "csi.example.com")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); cancel() })
	return registerapi.NewRegistrationClient(conn), socket, func() error {
		cancel()
		return <-done
	}
}

func TestRegisters(t *testing.T) {
	client, socket, stop := kubelet(t)
	info, err := client.GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{info.Type, info.Name, info.Endpoint, strings.Join(info.SupportedVersions, ",")}
	if d := cmp.Diff([]string{"CSIPlugin", "csi.example.com", "/run/csi.sock", "1.0.0"}, got); d != "" {
		t.Error(d)
	}
	if _, err := client.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Errorf("Run ended with %v, want nil", err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestRefusalEndsRun(t *testing.T) {
	client, _, stop := kubelet(t)
	_, err := client.NotifyRegistrationStatus(t.Context(),
		&registerapi.RegistrationStatus{Error: "node id is empty"}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	err = stop()
	if err == nil || !strings.Contains(err.Error(), "node id is empty") || !strings.Contains(err.Error(), "csi.example.com") {
		t.Errorf("Run ended with %v, want the kubelet's words", err)
	}
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"endpoint":  {Driver: "d", Endpoint: "csi.sock", Directory: t.TempDir()},
		"directory": {Driver: "d", Endpoint: "/run/csi.sock", Directory: "/" + strings.Repeat("x", 120)},
	} {
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "register driver d") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

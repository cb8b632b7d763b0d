package registrar

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestManyDrivers(t *testing.T) {
	k := Kubelet{Directory: t.TempDir(), Logger: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, driver := range []string{"a", "b"} {
		go func() { done <- k.Run(ctx, driver, "/run/"+driver+"/csi.sock") }()
		conn, err := grpc.NewClient("unix://"+SocketPath(k.Directory, driver), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		info, err := registerapi.NewRegistrationClient(conn).GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
		if err != nil || info.Name != driver || info.Endpoint != "/run/"+driver+"/csi.sock" {
			t.Errorf("%v, %v", info, err)
		}
		_ = conn.Close()
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestForget(t *testing.T) {
	k := Kubelet{Directory: t.TempDir(), Logger: logr.Discard()}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: SocketPath(k.Directory, "a"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for range 2 {
		if err := k.Forget("a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(SocketPath(k.Directory, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if err := k.Forget("a\x00"); err == nil {
		t.Error("what cannot be removed is no error")
	}
}

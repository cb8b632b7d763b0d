// Package registrar tells the kubelet of this node that a CSI driver is here:
// it serves the plugin registration API (v1) on a socket in the directory that
// the kubelet watches, so that no sidecar is needed.
//
// It never handles volumes.
package registrar

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/moor-storage/moor/pkg/csiserver"
)

// supportedVersion is the CSI version told to the kubelet, which takes 1.x.
const supportedVersion = "1.0.0"

// drainTime is short: the kubelet's calls here are answered at once.
const drainTime = time.Second

// Options says what to register, and where.
type Options struct {
	// Driver is the CSI driver's name; required.
	Driver string
	// Endpoint is the CSI socket of the driver as the kubelet sees it: an
	// absolute path, with or without unix://; required.
	Endpoint string
	// Directory is the kubelet's plugin registry, such as
	// /var/lib/kubelet/plugins_registry; required.
	Directory string
	Logger    logr.Logger
}

// SocketPath is where the kubelet finds the registration of driver.
func SocketPath(directory, driver string) string {
	return filepath.Join(directory, driver+"-reg.sock")
}

// Run serves the registration until ctx is done, and then returns nil; the
// socket is removed, which makes the kubelet forget the driver. A kubelet that
// refuses the driver ends Run with an error that has its message. The CSI socket
// should be served before: the kubelet calls it at once.
func Run(ctx context.Context, o Options) error {
	_, endpoint, err := csiserver.ParseEndpoint(o.Endpoint)
	if err != nil {
		return fmt.Errorf("register driver %s: %w", o.Driver, err)
	}
	s := &server{driver: o.Driver, endpoint: endpoint, log: o.Logger, refused: make(chan error, 1)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.refused:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err = csiserver.Serve(ctx, "unix://"+SocketPath(o.Directory, o.Driver), func(g *grpc.Server) {
		registerapi.RegisterRegistrationServer(g, s)
	}, csiserver.Options{Logger: o.Logger, Drain: drainTime})
	if err != nil {
		return fmt.Errorf("register driver %s: %w", o.Driver, err)
	}
	var refused refusal
	if errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	return nil
}

// refusal is the kubelet's refusal of a driver.
type refusal struct{ driver, message string }

func (r refusal) Error() string {
	return fmt.Sprintf("the kubelet refused to register driver %s: %s", r.driver, r.message)
}

type server struct {
	registerapi.UnimplementedRegistrationServer
	driver, endpoint string
	log              logr.Logger
	refused          chan error
}

// GetInfo tells the kubelet what is here.
func (s *server) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: s.driver, Endpoint: s.endpoint,
		SupportedVersions: []string{supportedVersion},
	}, nil
}

// NotifyRegistrationStatus is told whether the kubelet accepted the driver.
func (s *server) NotifyRegistrationStatus(_ context.Context, st *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if st.GetPluginRegistered() {
		s.log.Info("registered with the kubelet", "driver", s.driver, "endpoint", s.endpoint)
		return &registerapi.RegistrationStatusResponse{}, nil
	}
	select {
	case s.refused <- refusal{s.driver, st.GetError()}:
	default: // one refusal is enough
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

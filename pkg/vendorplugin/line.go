package vendorplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
)

// services are the stubs over one connection.
type services struct {
	identity pluginv1.IdentityServiceClient
	storage  pluginv1.StoragePluginServiceClient
	epochs   epochv1.EpochServiceClient
}

// line keeps one connection to a socket. It belongs to the file that the socket
// was when it was dialed: a plugin that restarts makes a new file, while its
// predecessor may go on serving the old one.
type line struct {
	socket  string
	timeout time.Duration

	mu   sync.Mutex
	wire *wire
}

// wire is one connection and how many use it: the line, and each call.
type wire struct {
	services
	conn *grpc.ClientConn
	file os.FileInfo
	uses int
}

// take returns the stubs of the connection to the present socket; release must
// be called when the call has ended.
func (l *line) take() (*services, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, err := os.Stat(l.socket)
	if err != nil {
		l.drop()
		return nil, nil, fmt.Errorf("there is no socket: %w", err)
	}
	if l.wire != nil && !sameFile(l.wire.file, now) {
		l.drop()
	}
	if l.wire == nil {
		if l.wire, err = l.dial(now); err != nil {
			return nil, nil, err
		}
	}
	w := l.wire
	w.uses++
	return &w.services, func() { l.release(w) }, nil
}

// current returns the connection as it is, for as long as release is not
// called; nil if there is none.
func (l *line) current() (*grpc.ClientConn, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire == nil {
		return nil, nil
	}
	w := l.wire
	w.uses++
	return w.conn, func() { l.release(w) }
}

// sameFile compares the time too: the number of a removed file is used again.
func sameFile(a, b os.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

func (l *line) release(w *wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.done()
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// drop gives up the connection; calls under way keep it until they end.
func (l *line) drop() {
	if l.wire != nil {
		l.wire.done()
		l.wire = nil
	}
}

func (w *wire) done() {
	w.uses--
	if w.uses == 0 {
		_ = w.conn.Close()
	}
}

func (l *line) dial(file os.FileInfo) (*wire, error) {
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.socket)
	}
	conn, err := grpc.NewClient("passthrough:///vendor-plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A socket on the same machine answers at once or not at all.
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			// Beyond a call's deadline, so that the call says that it was late.
			MinConnectTimeout: 2 * l.timeout,
		}))
	if err != nil {
		return nil, err
	}
	return &wire{
		services: services{
			identity: pluginv1.NewIdentityServiceClient(conn),
			storage:  pluginv1.NewStoragePluginServiceClient(conn),
			epochs:   epochv1.NewEpochServiceClient(conn),
		},
		conn: conn, file: file, uses: 1,
	}, nil
}

// gone reports whether a plugin said that the thing named is not there.
func gone(err error) bool { return status.Code(err) == codes.NotFound }

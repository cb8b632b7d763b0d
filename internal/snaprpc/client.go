package snaprpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// DefaultTimeout bounds a call when New is given none. SNAP answers in
// milliseconds; only hot-plug with wait_for_done takes seconds.
const DefaultTimeout = 30 * time.Second

// maxSocketPath is sizeof(sockaddr_un.sun_path) less the final NUL, unix(7).
const maxSocketPath = 107

// Client calls one SNAP service. It is safe for concurrent use: calls do not
// share a connection.
type Client struct {
	// Socket is the path of the service's unix socket.
	Socket string

	timeout time.Duration
	lastID  atomic.Int64
}

// New returns a client of the service on socket. Each call ends after timeout
// at the latest, or DefaultTimeout if it is not positive. Nothing is dialed.
func New(socket string, timeout time.Duration) *Client {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Client{Socket: socket, timeout: timeout}
}

type request struct {
	Version string `json:"jsonrpc"`
	ID      int64  `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params,omitempty"`
}

// Call sends one request and waits for its answer. params may be nil; the
// answer is decoded into result unless that is nil. The error is a *Error if
// the service refused, and wraps ErrUnavailable if the outcome is unknown.
// A context that ends is in the chain too.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req := request{Version: "2.0", ID: c.lastID.Add(1), Method: method, Params: params}
	line, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	if err := c.exchange(ctx, append(line, '\n'), req.ID, result); err != nil {
		return fmt.Errorf("call %s on snap socket %s: %w", method, c.Socket, withCause(ctx, err))
	}
	return nil
}

// withCause adds the context's end to an error that it brought about, so that
// callers can tell a canceled call from a broken service.
func withCause(ctx context.Context, err error) error {
	if _, refused := Code(err); refused || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, ctx.Err())
}

func (c *Client) exchange(ctx context.Context, line []byte, id int64, result any) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Call's context always ends, so this bounds a service that never answers
	// too; a deadline of the connection could strike before the context's and
	// hide what ended the call.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // fails if it is closed
	defer stop()
	if _, err := conn.Write(line); err != nil {
		return fmt.Errorf("%w: send the request: %w", ErrUnavailable, err)
	}
	return decodeAnswer(conn, id, result)
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	if len(c.Socket) > maxSocketPath {
		return nil, fmt.Errorf("socket path has %d bytes, the kernel allows %d: use a shorter path or a symlink", len(c.Socket), maxSocketPath)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("%w: connect (is the service running?): %w", ErrUnavailable, err)
	}
	return conn, nil
}

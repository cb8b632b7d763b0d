package blocktarget

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ErrUnreachable means that the target could not be asked, or gave no answer that says
// what is: whether anything was done is unknown, and the call may be repeated.
var ErrUnreachable = errors.New("target cannot be asked")

// The paths of the admin socket; JSON over HTTP.
const (
	pathRevoke   = "/v1/revoke"
	pathFence    = "/v1/fence"
	pathSessions = "/v1/sessions"
	pathStats    = "/v1/stats"
)

// maxAdminBody bounds what either end reads, in bytes.
const maxAdminBody = 16 << 20

// revocation is the body of pathRevoke.
type revocation struct {
	Volume string `json:"volume"`
	// Node may be empty: every node.
	Node string `json:"node"`
	// Store is whose volume it is; a target of another store refuses.
	Store string `json:"store"`
}

// fencing is the body of pathFence.
type fencing struct {
	Volume string `json:"volume"`
	// Epoch: those below it are over. From 1.
	Epoch int64 `json:"epoch"`
	// Store is whose volume it is; a target of another store refuses.
	Store string `json:"store"`
}

// receipt is the answer to a revocation, and to a fencing.
type receipt struct {
	Store    string `json:"store"`
	Sessions int    `json:"sessions"`
}

// Session is one DPU that has one volume open.
type Session struct {
	Volume   string `json:"volume"`
	Node     string `json:"node"`
	Remote   string `json:"remote"`
	ReadOnly bool   `json:"readOnly"`
	// InFlight is how many requests are worked on now.
	InFlight int `json:"inFlight"`
}

// Stats count since the start of the server.
type Stats struct {
	Connections  int   `json:"connections"`
	Sessions     int   `json:"sessions"`
	Reads        int64 `json:"reads"`
	Writes       int64 `json:"writes"`
	BytesRead    int64 `json:"bytesRead"`
	BytesWritten int64 `json:"bytesWritten"`
}

// Sessions returns who has what open, by volume and node; of all volumes.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	var names []string
	for name := range s.volumes {
		names = append(names, name)
	}
	s.mu.Unlock()
	out := []Session{}
	for _, name := range names {
		v := s.hold(name)
		for _, x := range v.sessions {
			out = append(out, Session{
				Volume: name, Node: x.export.Node, Remote: x.conn.RemoteAddr().String(),
				ReadOnly: x.shape.readOnly, InFlight: x.gate.Busy(),
			})
		}
		s.let(name, v)
	}
	slices.SortFunc(out, func(a, b Session) int {
		return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// Stats returns the counters of the server.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Connections: len(s.conns), Reads: s.stats.reads.Load(), Writes: s.stats.writes.Load(),
		BytesRead: s.stats.bytesRead.Load(), BytesWritten: s.stats.bytesWritten.Load(), Sessions: int(s.stats.sessions.Load()),
	}
}

// AdminHandler answers the admin socket of a server that serves the volumes of
// store.
func (s *Server) AdminHandler(store string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathRevoke, func(w http.ResponseWriter, r *http.Request) {
		var q revocation
		if err := json.NewDecoder(io.LimitReader(r.Body, maxAdminBody)).Decode(&q); err != nil {
			http.Error(w, "the body is no revocation: "+err.Error(), http.StatusBadRequest)
			return
		}
		if q.Volume == "" {
			http.Error(w, "no volume is named", http.StatusBadRequest)
			return
		}
		if q.Store != store {
			http.Error(w, fmt.Sprintf("this target serves store %q, not %q", store, q.Store), http.StatusConflict)
			return
		}
		writeJSON(w, receipt{Store: store, Sessions: s.Revoke(q.Volume, q.Node)})
	})
	mux.HandleFunc("POST "+pathFence, s.serveFence(store))
	mux.HandleFunc("POST "+pathPause, s.servePause(store))
	mux.HandleFunc("POST "+pathAdjust, s.serveAdjust(store))
	mux.HandleFunc("GET "+pathSessions, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Sessions()) })
	mux.HandleFunc("GET "+pathStats, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Stats()) })
	return mux
}

// serveFence answers pathFence.
func (s *Server) serveFence(store string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q fencing
		err := json.NewDecoder(io.LimitReader(r.Body, maxAdminBody)).Decode(&q)
		switch {
		case err != nil:
			http.Error(w, "the body is no fencing: "+err.Error(), http.StatusBadRequest)
		case q.Volume == "" || q.Epoch < 1:
			http.Error(w, "no volume is named, or no epoch", http.StatusBadRequest)
		case q.Store != store:
			http.Error(w, fmt.Sprintf("this target serves store %q, not %q", store, q.Store), http.StatusConflict)
		default:
			writeJSON(w, receipt{Store: store, Sessions: s.Fence(q.Volume, q.Epoch)})
		}
	}
}

func writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client sees half an answer as none
}

// ListenAdmin makes the admin socket, which only its owner may use, in place of
// one that a dead target left. The caller knows that no other target lives.
func ListenAdmin(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the admin socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old admin socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("make the admin socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("protect the admin socket: %w", err)
	}
	return l, nil
}

// ServeAdmin answers the admin socket until ctx ends.
func ServeAdmin(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: handshakeTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin socket %s: %w", l.Addr(), err)
	}
	return nil
}

// Admin reaches a target by its admin socket. Use NewAdmin.
type Admin struct {
	socket, store string
	http          *http.Client
}

// NewAdmin returns a client of the admin socket of the target that serves
// store. timeout bounds each call.
func NewAdmin(socket, store string, timeout time.Duration) *Admin {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	// A fresh connection a call: one that is kept may belong to a dead target.
	return &Admin{socket: socket, store: store, http: &http.Client{
		Timeout: timeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// Revoke asks the target to end what node, or every node if it is empty, has
// open of the volume. When it returns nil, none of their writes reaches the
// volume any more. ErrUnreachable otherwise. The grant has to be gone before.
func (a *Admin) Revoke(ctx context.Context, volume, node string) error {
	body, err := json.Marshal(revocation{Volume: volume, Node: node, Store: a.store})
	if err != nil {
		return err
	}
	var got receipt
	if err := a.call(ctx, http.MethodPost, pathRevoke, body, &got); err != nil {
		return fmt.Errorf("take volume %s back from %q at the target: %w", volume, node, err)
	}
	if got.Store != a.store {
		return fmt.Errorf("take volume %s back from %q at the target: it answers for store %q: %w", volume, node, got.Store, ErrUnreachable)
	}
	return nil
}

// Fence asks the target to refuse every change of the volume under an epoch below the
// one named, or without one. When it returns nil, none of them reaches the volume any
// more. ErrUnreachable otherwise. The grants have to say so before.
func (a *Admin) Fence(ctx context.Context, volume string, epoch int64) error {
	body, err := json.Marshal(fencing{Volume: volume, Epoch: epoch, Store: a.store})
	if err != nil {
		return err
	}
	var got receipt
	if err := a.call(ctx, http.MethodPost, pathFence, body, &got); err != nil {
		return fmt.Errorf("fence volume %s below epoch %d at the target: %w", volume, epoch, err)
	}
	if got.Store != a.store {
		return fmt.Errorf("fence volume %s below epoch %d at the target: it answers for store %q: %w", volume, epoch, got.Store, ErrUnreachable)
	}
	return nil
}

// Sessions asks the target who has what open.
func (a *Admin) Sessions(ctx context.Context) ([]Session, error) {
	var out []Session
	if err := a.call(ctx, http.MethodGet, pathSessions, nil, &out); err != nil {
		return nil, fmt.Errorf("list the sessions of the target: %w", err)
	}
	return out, nil
}

// Stats asks the target for its counters.
func (a *Admin) Stats(ctx context.Context) (Stats, error) {
	var out Stats
	if err := a.call(ctx, http.MethodGet, pathStats, nil, &out); err != nil {
		return Stats{}, fmt.Errorf("read the counters of the target: %w", err)
	}
	return out, nil
}

func (a *Admin) call(ctx context.Context, method, path string, body []byte, out any) error {
	u := url.URL{Scheme: "http", Host: "target", Path: path}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w by its socket %s, is it running? %w", ErrUnreachable, a.socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminBody))
	if err != nil {
		return fmt.Errorf("%w: its answer broke off: %w", ErrUnreachable, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it says %s: %s", ErrUnreachable, resp.Status, bytes.TrimSpace(raw))
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%w: its answer makes no sense: %w", ErrUnreachable, err)
	}
	return nil
}

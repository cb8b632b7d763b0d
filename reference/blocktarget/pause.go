package blocktarget

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// The paths of the admin socket for what is not about rights.
const (
	pathPause  = "/v1/pause"
	pathAdjust = "/v1/adjust"
)

// MaxPause is how long changes wait at most: well below the time after which a
// Device gives up on its I/O.
const MaxPause = 5 * time.Second

// request bodies of the two paths.
type (
	pauseOf struct {
		Volumes []string `json:"volumes"`
		Store   string   `json:"store"`
	}
	adjustOf struct {
		Volume string `json:"volume"`
		Store  string `json:"store"`
	}
)

// paused is the line that says that the pause has begun.
const paused = "paused\n"

// errExpired: the pause is over though it was not ended.
var errExpired = fmt.Errorf("the pause lasted longer than %s", MaxPause)

// servePause answers pathPause: the pause lasts as long as the request does, so
// it ends with a client that dies.
func (s *Server) servePause(store string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q pauseOf
		if !readBody(w, r, store, &q, func() string { return q.Store }) {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), MaxPause)
		defer cancel()
		_ = s.Pause(ctx, q.Volumes, func(ctx context.Context) error {
			out := http.NewResponseController(w)
			if _, err := io.WriteString(w, paused); err != nil || out.Flush() != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
	}
}

func (s *Server) serveAdjust(store string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q adjustOf
		if !readBody(w, r, store, &q, func() string { return q.Store }) {
			return
		}
		if err := s.Adjust(q.Volume); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, receipt{Store: store})
	}
}

// readBody reads the body of a request about volumes of store; false if that
// was refused.
func readBody(w http.ResponseWriter, r *http.Request, store string, into any, of func() string) bool {
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAdminBody)).Decode(into); err != nil {
		http.Error(w, "the body makes no sense: "+err.Error(), http.StatusBadRequest)
		return false
	}
	if of() != store {
		http.Error(w, fmt.Sprintf("this target serves store %q, not %q", store, of()), http.StatusConflict)
		return false
	}
	return true
}

// Adjust has the target look at the limits of a volume again. ErrUnreachable if
// it may not have.
func (a *Admin) Adjust(ctx context.Context, volume string) error {
	body, err := json.Marshal(adjustOf{Volume: volume, Store: a.store})
	if err != nil {
		return err
	}
	if err := a.call(ctx, http.MethodPost, pathAdjust, body, &receipt{}); err != nil {
		return fmt.Errorf("change the limits of volume %s at the target: %w", volume, err)
	}
	return nil
}

// Pause makes the changes to the volumes wait at the target, calls during, and
// lets them go on. ErrUnreachable if the target could not be asked, or ended
// the pause before during was done: then what it saw is not of one instant.
func (a *Admin) Pause(ctx context.Context, volumes []string, during func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxPause)
	defer cancel()
	body, err := a.beginPause(ctx, volumes)
	if err != nil {
		return fmt.Errorf("have the target hold up writes to %v: %w", volumes, err)
	}
	defer func() { _ = body.Close() }()
	ended := make(chan struct{})
	go func() { // the body ends when the pause does
		defer close(ended)
		defer cancel()
		_, _ = io.Copy(io.Discard, body)
	}()
	err = during(ctx)
	early := ctx.Err()
	cancel()
	<-ended
	if early != nil {
		return errors.Join(fmt.Errorf("%w: it let writes to %v go on too early (at most %s): %w", ErrUnreachable, volumes, MaxPause, errExpired), err)
	}
	return err
}

// beginPause returns once the changes wait; they go on when the body is closed.
func (a *Admin) beginPause(ctx context.Context, volumes []string) (io.ReadCloser, error) {
	raw, err := json.Marshal(pauseOf{Volumes: volumes, Store: a.store})
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "http", Host: "target", Path: pathPause}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w by its socket %s, is it running? %w", ErrUnreachable, a.socket, err)
	}
	first := make([]byte, len(paused))
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK || string(first) != paused {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%w: it says %s: %s", ErrUnreachable, resp.Status, bytes.TrimSpace(first))
	}
	return resp.Body, nil
}

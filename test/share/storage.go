package share

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/internal/filestore"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/writelog"
)

// Storage has the volumes, and who may use them. Use New.
type Storage struct {
	dir    string
	server *blocktarget.Server
	rights filestore.Store[rights]

	// mu makes changes of rights one after the other.
	mu sync.Mutex
}

// rights are who may use a volume.
type rights struct {
	// Clients are the names that were let in, by the DPU on which they are: one each.
	Clients map[string]string `json:"clients"`
	// Shut are the names that were shut out, which is for good.
	Shut []string `json:"shut"`
}

// New has the volumes in dir, and records in logs what is written to them.
func New(dir, logs string, log logr.Logger) *Storage {
	s := &Storage{dir: dir, rights: filestore.Store[rights]{Dir: filepath.Join(dir, "rights")}}
	s.server = blocktarget.NewServer(blocktarget.Options{
		Grants: s, Log: log,
		Record: func(file string) (blocktarget.Recorder, error) { return writelog.Open(logs, file) },
	})
	return s
}

// errRefused is of what the storage does not do.
var errRefused = errors.New("refused")

// file is that of a volume, whose name is to be one element of a path.
func (s *Storage) file(volume string) (string, error) {
	if volume == "" || volume != filepath.Base(volume) || strings.HasPrefix(volume, ".") {
		return "", fmt.Errorf("volume %q has no name that a volume can have: %w", volume, errRefused)
	}
	return filepath.Join(s.dir, volume+".img"), nil
}

// Grant implements blocktarget.Grants: the name of the attachment is the token.
func (s *Storage) Grant(volume, node string) (blocktarget.Grant, error) {
	file, err := s.file(volume)
	if err != nil {
		return blocktarget.Grant{}, fmt.Errorf("%w: %w", err, blocktarget.ErrDenied)
	}
	r, _, err := s.rights.Get(volume)
	if err != nil {
		return blocktarget.Grant{}, err
	}
	client := r.Clients[node]
	if client == "" {
		return blocktarget.Grant{}, fmt.Errorf("no client on %s was let in to volume %s: %w", node, volume, blocktarget.ErrDenied)
	}
	return blocktarget.Grant{File: file, TokenHash: blocktarget.HashToken(client)}, nil
}

// change changes the rights to a volume, and ends what a DPU has open of it before it returns.
func (s *Storage) change(volume, node string, do func(*rights) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _, err := s.rights.Get(volume)
	if err != nil {
		return err
	}
	if r.Clients == nil {
		r.Clients = map[string]string{}
	}
	if err := do(&r); err != nil {
		return err
	}
	if err := s.rights.Put(volume, r); err != nil {
		return err
	}
	s.server.Revoke(volume, node)
	return nil
}

// create makes a volume; one that is there is success.
func (s *Storage) create(volume string, bytes int64) error {
	path, err := s.file(volume)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(bytes), f.Close())
}

// remove removes a volume; one that is gone is success.
func (s *Storage) remove(volume string) error {
	path, err := s.file(volume)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.rights.Delete(volume)
}

// admit lets a client in, unless it was shut out. It takes the place of another client on that DPU.
func (s *Storage) admit(volume, node, client string) error {
	return s.change(volume, node, func(r *rights) error {
		if client == "" || node == "" || slices.Contains(r.Shut, client) {
			return fmt.Errorf("client %q of volume %s was shut out, or has no name: %w", client, volume, errRefused)
		}
		r.Clients[node] = client
		return nil
	})
}

// leave ends what a client has open; it may come again.
func (s *Storage) leave(volume, node, client string) error {
	return s.change(volume, node, func(r *rights) error {
		if r.Clients[node] == client {
			delete(r.Clients, node)
		}
		return nil
	})
}

// shut shuts a client out for good: when it returns nil, none of its writes reaches the volume any more.
func (s *Storage) shut(volume, node, client string) error {
	return s.change(volume, node, func(r *rights) error {
		if client == "" || node == "" {
			return fmt.Errorf("a client of volume %s is to be shut out that has no name: %w", volume, errRefused)
		}
		if !slices.Contains(r.Shut, client) {
			r.Shut = append(r.Shut, client)
		}
		if r.Clients[node] == client {
			delete(r.Clients, node)
		}
		return nil
	})
}

// Handler is the administration: GET /create, /delete, /admit, /leave and /shut, with volume, bytes, node and
// client in the query. 403 is a refusal.
func (s *Storage) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, do := range map[string]func(volume, node, client string) error{"/admit": s.admit, "/leave": s.leave, "/shut": s.shut} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			answer(w, do(q.Get("volume"), q.Get("node"), q.Get("client")))
		})
	}
	mux.HandleFunc("GET /create", func(w http.ResponseWriter, r *http.Request) {
		bytes, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		if err == nil {
			err = s.create(r.URL.Query().Get("volume"), bytes)
		}
		answer(w, err)
	})
	mux.HandleFunc("GET /delete", func(w http.ResponseWriter, r *http.Request) { answer(w, s.remove(r.URL.Query().Get("volume"))) })
	return mux
}

func answer(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errRefused):
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		_, _ = w.Write([]byte("done\n")) // a client that has gone away asks again
	}
}

// Serve serves volumes and the administration until ctx ends.
func (s *Storage) Serve(ctx context.Context, volumes, administration net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	admin := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = admin.Close() })()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		if err := admin.Serve(administration); !errors.Is(err, http.ErrServerClosed) {
			ended <- fmt.Errorf("serve the administration: %w", err)
			return
		}
		ended <- nil
	}()
	err := s.server.Serve(ctx, volumes)
	cancel()
	return errors.Join(err, <-ended)
}

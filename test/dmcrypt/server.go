package dmcrypt

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/loopdev"
)

// labelPrefix begins the labels of the loop devices.
const labelPrefix = "dmcrypt/"

// Server keeps mappings, by name. It serves POST requests:
//
//	/open?name=N&device=MAJOR:MINOR&offset=BYTES&sector=BYTES
//		with the volume key in hexadecimal digits; answers the numbers of the new device,
//		MAJOR:MINOR; 409 if there is a mapping of that name
//	/close?name=N
//		takes it away; 404 if there is none, 409 if it is in use
type Server struct {
	directory string
	routes    http.ServeMux

	mu       sync.Mutex
	mappings map[string]*mapping
}

// mapping is one device in plain text.
type mapping struct {
	directory string
	volume    *volume
	server    *fuse.Server
	loop      *loopdev.Device
}

// New serves with its mounts in an empty directory.
func New(directory string) *Server {
	s := &Server{directory: directory, mappings: map[string]*mapping{}}
	s.routes.HandleFunc("POST /open", answer(s.open))
	s.routes.HandleFunc("POST /close", answer(s.close))
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

// Close takes all mappings away.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for name, m := range s.mappings {
		errs = append(errs, m.end())
		delete(s.mappings, name)
	}
	return errors.Join(errs...)
}

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	words  string
}

func (r *refusal) Error() string { return r.words }

// answer makes a handler of what gives a text or an error.
func answer(serve func(*http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := serve(r)
		if refused, ok := errors.AsType[*refusal](err); ok {
			http.Error(w, refused.words, refused.status)
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		} else {
			_, _ = io.WriteString(w, text)
		}
	}
}

func (s *Server) open(r *http.Request) (string, error) {
	var major, minor uint32
	var a area
	ask := r.URL.Query()
	_, err := fmt.Sscanf(ask.Get("device")+" "+ask.Get("offset")+" "+ask.Get("sector"), "%d:%d %d %d", &major, &minor, &a.offset, &a.sector)
	body, readErr := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	key, keyErr := hex.DecodeString(strings.TrimSpace(string(body)))
	if err := errors.Join(err, readErr, keyErr); err != nil {
		return "", &refusal{http.StatusBadRequest, err.Error()}
	}
	name := ask.Get("name")
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" || s.mappings[name] != nil {
		return "", &refusal{http.StatusConflict, fmt.Sprintf("a device of the name %q is there, or it is no name", name)}
	}
	m, err := s.begin(unix.Mkdev(major, minor), key, a)
	if err != nil {
		return "", err
	}
	s.mappings[name] = m
	return m.loop.Number(), nil
}

// begin decrypts a device; on failure nothing is left of it.
func (s *Server) begin(device uint64, key []byte, a area) (_ *mapping, err error) {
	m := &mapping{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.end())
		}
	}()
	if m.directory, err = os.MkdirTemp(s.directory, "volume-"); err != nil {
		return nil, err
	}
	node := m.directory + ".device"
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(device)); err != nil {
		return nil, fmt.Errorf("make a node of the encrypted device: %w", err)
	}
	m.volume, err = openVolume(node, key, a)
	if err := errors.Join(err, os.Remove(node)); err != nil {
		return nil, err
	}
	if m.server, err = mount(m.directory, m.volume); err != nil {
		return nil, err
	}
	plain := filepath.Join(m.directory, fileName)
	m.loop, err = loopdev.Attach(plain, labelPrefix+filepath.Base(m.directory), loopdev.Options{Bypass: true})
	if err == nil {
		m.loop.Release()
	}
	return m, err
}

func (s *Server) close(r *http.Request) (string, error) {
	name := r.URL.Query().Get("name")
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mappings[name]
	if m == nil {
		return "", &refusal{http.StatusNotFound, fmt.Sprintf("there is no device of the name %q", name)}
	}
	if err := m.end(); err != nil {
		return "", &refusal{http.StatusConflict, err.Error()}
	}
	delete(s.mappings, name)
	return "", nil
}

// end takes away what there is of a mapping, from above to below; what failed can be tried again.
func (m *mapping) end() error {
	if m.loop != nil {
		if err := m.loop.Detach(); err != nil {
			return fmt.Errorf("take away the device in plain text: %w", err)
		}
		m.loop = nil
	}
	if m.server != nil {
		if err := m.server.Unmount(); err != nil {
			return fmt.Errorf("unmount what is decrypted: %w", err)
		}
		m.server = nil
	}
	if m.volume != nil {
		if err := errors.Join(m.volume.sync(), m.volume.close()); err != nil {
			return fmt.Errorf("close the encrypted device: %w", err)
		}
		m.volume = nil
	}
	if m.directory == "" {
		return nil
	}
	return os.Remove(m.directory)
}

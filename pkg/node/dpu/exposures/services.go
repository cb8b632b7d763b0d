package exposures

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// socketName is where a SNAP service listens in its provider's directory.
const socketName = "snap.sock"

// services finds the SNAP services by their sockets. Safe for concurrent use.
type services struct {
	root, boot string
	open       func(socket string) provisioner.DPU

	mu   sync.Mutex
	used map[string]provisioner.DPU
}

// get returns the service called name, whether it answers or not.
func (s *services) get(name string) provisioner.DPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[name] == nil {
		s.used[name] = s.open(filepath.Join(s.root, name, socketName))
	}
	return s.used[name]
}

// names returns the services that have a socket, or were used before, in
// order: one that is down now may still show devices.
func (s *services) names() ([]string, error) {
	there, err := s.sockets()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.used))
	for _, name := range there {
		if s.used[name] == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, err
}

// sockets returns the directories in root that hold a socket, in order. A root
// that does not exist holds none.
func (s *services) sockets() ([]string, error) {
	entries, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for services under %s: %w", s.root, err)
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(s.root, e.Name(), socketName)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// list asks every service once what it shows.
func (s *services) list(ctx context.Context) (Listing, error) {
	out := Listing{Exposures: map[string]provisioner.Exposure{}, Service: map[string]string{}}
	names, failed := s.names()
	for _, name := range names {
		all, err := s.get(name).List(ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("SNAP service %s: %w", name, err))
		}
		for _, e := range all {
			if have := out.Exposures[e.Device]; !have.Visible { // where two have it, what the host sees counts
				out.Exposures[e.Device], out.Service[e.Device] = e, name
			}
		}
	}
	out.Complete = failed == nil && len(names) > 0
	return out, failed
}

// withdraw withdraws the device from every service. Those that do not answer
// count unless it is known that another one shows the volume.
func (s *services) withdraw(ctx context.Context, device, known string) error {
	names, err := s.names()
	if err != nil {
		return err
	}
	if known != "" && !slices.Contains(names, known) {
		names = append(names, known)
	}
	if len(names) == 0 {
		return fmt.Errorf("no SNAP service has a socket %s under %s, so it cannot be told whether device %s is still shown: is its pod running? %w",
			socketName, s.root, device, provisioner.ErrUnavailable)
	}
	var failed error
	for _, name := range names {
		err := s.get(name).Withdraw(ctx, device)
		if err != nil && (known == "" || known == name) {
			failed = errors.Join(failed, fmt.Errorf("SNAP service %s: %w", name, err))
		}
	}
	return failed
}

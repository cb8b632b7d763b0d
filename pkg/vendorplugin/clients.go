package vendorplugin

import (
	"sync"
	"time"
)

// Clients keeps one Client for each plugin under a root directory. Safe for
// concurrent use.
type Clients struct {
	root    string
	timeout time.Duration

	mu     sync.Mutex
	byName map[string]*Client
}

// NewClients returns an empty set; root and timeout are New's.
func NewClients(root string, timeout time.Duration) *Clients {
	return &Clients{root: root, timeout: timeout, byName: map[string]*Client{}}
}

// Client returns the client of the plugin called name, always the same one.
func (s *Clients) Client(name string) (*Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.byName[name]; ok {
		return c, nil
	}
	c, err := New(s.root, name, s.timeout)
	if err != nil {
		return nil, err
	}
	s.byName[name] = c
	return c, nil
}

// Close closes every client.
func (s *Clients) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.byName {
		c.Close()
		delete(s.byName, name)
	}
}

package plugins

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// real makes a world whose plugins are called over their sockets.
func realWorld(t *testing.T) *world {
	t.Helper()
	var clients *vendorplugin.Clients
	w := newWorld(t, Options{
		Period: time.Second,
		Open:   func(name string) (Client, error) { return clients.Client(name) },
	})
	clients = vendorplugin.NewClients(w.root, 2*time.Second)
	t.Cleanup(clients.Close)
	return w
}

func (w *world) serve(name, version string) (stop func()) {
	w.t.Helper()
	server := vendorplugin.NewServer(vendorplugin.Options{
		Info: vendorplugin.Info{Name: name + ".moor.dev", Version: version}, Capabilities: vendorplugin.Capabilities{Block: true},
		Logger: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, filepath.Join(w.root, name, socketName)) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				w.t.Error(err)
			}
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// TestOverSockets: a real plugin is found, lost with its process although its
// socket stays, and found again with the next one's.
func TestOverSockets(t *testing.T) {
	w := realWorld(t)
	w.start()
	stop := w.serve("block", "1")
	if s := w.ready("block", true); s.Version != "1" || s.Provider != "nvidia" {
		t.Fatalf("got %+v", s)
	}
	stop()
	if _, err := os.Stat(filepath.Join(w.root, "block", socketName)); err != nil {
		t.Fatal("the socket went with the server: the test tests nothing", err)
	}
	w.ready("block", false)
	w.serve("block", "2")
	w.until("the next process", func(all []moorv1alpha1.PluginState) bool {
		return len(all) == 1 && all[0].Ready && all[0].Version == "2"
	})
}

// TestSilentSocket: sockets that no process listens on, or one that never answers.
func TestSilentSocket(t *testing.T) {
	w := realWorld(t)
	w.socket("deserted")
	w.must(os.MkdirAll(filepath.Join(w.root, "mute"), 0o755))
	l, err := net.Listen("unix", filepath.Join(w.root, "mute", socketName))
	w.must(err)
	defer l.Close()
	w.start()
	for name, words := range map[string]string{"deserted": "is its pod running", "mute": "did not answer"} {
		if s := w.ready(name, false); !strings.Contains(s.Message, words) {
			t.Fatalf("%s: got %+v", name, s)
		}
	}
}

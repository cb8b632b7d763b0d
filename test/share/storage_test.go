package share

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/writelog"
)

// bed is a storage that runs.
type bed struct {
	t              *testing.T
	volumes, admin string
	logs           string
}

func newBed(t *testing.T) bed {
	t.Helper()
	b := bed{t: t, logs: t.TempDir()}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	volumes, admin := listen(), listen()
	b.volumes, b.admin = volumes.Addr().String(), admin.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(t.TempDir(), b.logs, testr.New(t)).Serve(ctx, volumes, admin) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// ask asks the administration, "admit volume=v&...", and is the status of the answer.
func (b bed) ask(what string, query url.Values) int {
	b.t.Helper()
	resp, err := http.Get("http://" + b.admin + "/" + what + "?" + query.Encode())
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func of(client, node string) url.Values {
	return url.Values{"volume": {"v"}, "client": {client}, "node": {node}}
}

func (b bed) open(client, node string) (*blocktarget.Device, error) {
	return blocktarget.OpenDevice(b.t.Context(), blocktarget.DeviceOptions{
		Address: b.volumes, IOTimeout: 5 * time.Second, Log: testr.New(b.t),
		Export: blocktarget.Export{Volume: "v", Node: node, Token: client}.String(),
	})
}

// TestShutOut: who was shut out writes nothing any more, by what it has open or by opening it again, and is not
// let in again; the next attachment to the same DPU is.
func TestShutOut(t *testing.T) {
	b := newBed(t)
	ok := func(what string, query url.Values) {
		t.Helper()
		if code := b.ask(what, query); code != http.StatusOK {
			t.Fatalf("%s: %d", what, code)
		}
	}
	refused := func(what string, query url.Values) {
		t.Helper()
		if code := b.ask(what, query); code != http.StatusForbidden {
			t.Errorf("%s %v: %d, want it to be refused", what, query, code)
		}
	}
	ok("create", url.Values{"volume": {"v"}, "bytes": {"1048576"}})
	if _, err := b.open("a", "dpu-1"); err == nil {
		t.Error("a client that was not let in has it open")
	}
	ok("admit", of("a", "dpu-1"))
	first, err := b.open("a", "dpu-1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if _, err := first.WriteAt([]byte(strings.Repeat("a", 512)), 0); err != nil {
		t.Fatal(err)
	}
	ok("shut", of("a", "dpu-1"))
	if _, err := first.WriteAt([]byte(strings.Repeat("b", 512)), 0); err == nil {
		t.Error("a client that was shut out has written")
	}
	if _, err := b.open("a", "dpu-1"); err == nil {
		t.Error("a client that was shut out has it open again")
	}
	refused("admit", of("a", "dpu-1"))
	refused("admit", of("", "dpu-1"))
	refused("shut", of("", "dpu-1"))
	refused("create", url.Values{"volume": {"../v"}, "bytes": {"1"}})

	ok("admit", of("b", "dpu-1"))
	second, err := b.open("b", "dpu-1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	got := make([]byte, 512)
	if _, err := second.ReadAt(got, 0); err != nil || string(got) != strings.Repeat("a", 512) {
		t.Errorf("it has %q, %v", got[:1], err)
	}
	writes, err := writelog.Read(writelog.Path(b.logs, "v.img"))
	if err != nil || len(writes) != 1 || writes[0].DPU != "dpu-1" {
		t.Errorf("recorded are %+v, %v", writes, err)
	}
}

// TestLeave: who has left has nothing open, and may come again.
func TestLeave(t *testing.T) {
	b := newBed(t)
	b.ask("create", url.Values{"volume": {"v"}, "bytes": {"1048576"}})
	for range 2 {
		b.ask("admit", of("a", "dpu-1"))
		d, err := b.open("a", "dpu-1")
		if err != nil {
			t.Fatal(err)
		}
		b.ask("leave", of("a", "dpu-1"))
		if _, err := d.WriteAt(make([]byte, 512), 0); err == nil {
			t.Error("a client that has left has written")
		}
		_ = d.Close()
	}
	for range 2 {
		if code := b.ask("delete", url.Values{"volume": {"v"}}); code != http.StatusOK {
			t.Errorf("delete: %d", code)
		}
	}
}

package blocktarget

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hail is a client's half of a handshake that asks for export.
func hail(code uint32, export string) []byte {
	b := binary.BigEndian.AppendUint32(nil, flagFixedNewstyle|flagNoZeroes)
	b = binary.BigEndian.AppendUint64(b, magicOption)
	b = binary.BigEndian.AppendUint32(b, code)
	b = binary.BigEndian.AppendUint32(b, uint32(len(export)+6))
	b = binary.BigEndian.AppendUint32(b, uint32(len(export)))
	b = append(b, export...)
	return binary.BigEndian.AppendUint16(b, 0)
}

func raw(code, length uint32, data string) []byte {
	b := binary.BigEndian.AppendUint32(nil, flagFixedNewstyle)
	b = binary.BigEndian.AppendUint64(b, magicOption)
	b = binary.BigEndian.AppendUint32(b, code)
	return append(binary.BigEndian.AppendUint32(b, length), data...)
}

// yes opens whatever it is asked for.
type yes struct{}

func (yes) look(Export) (shape, error) { return shape{size: 512}, nil }
func (yes) open(Export) (shape, error) { return shape{size: 512}, nil }

type talk struct {
	io.Reader
	io.Writer
}

func TestHandshake(t *testing.T) {
	long := strings.Repeat("x", maxOption+1)
	cases := map[string]struct {
		in     []byte
		opened bool
		broken bool
		words  string // in the answer
	}{
		"go":                     {in: hail(optGo, "v@n#t"), opened: true},
		"info, then go":          {in: append(hail(optInfo, "v@n#t"), hail(optGo, "v@n#t")[4:]...), opened: true},
		"unknown, then go":       {in: append(raw(3, 0, ""), hail(optGo, "v@n#t")[4:]...), opened: true, words: "NBD_OPT_GO"},
		"too long, then go":      {in: append(raw(optGo, uint32(len(long)), long), hail(optGo, "v@n#t")[4:]...), opened: true, words: "too much"},
		"no form, then go":       {in: append(raw(optGo, 3, "abc"), hail(optGo, "v@n#t")[4:]...), opened: true, words: "form"},
		"name longer than data":  {in: append(raw(optGo, 6, "\xff\xff\xff\xff\x00\x00"), hail(optGo, "v@n#t")[4:]...), opened: true, words: "form"},
		"abort":                  {in: raw(optAbort, 0, "")},
		"the old way":            {in: raw(optExportName, 5, "v@n#t"), broken: true},
		"more than can be":       {in: raw(optGo, 1<<31, ""), broken: true},
		"no newstyle":            {in: []byte{0, 0, 0, 0}, broken: true},
		"unknown client flags":   {in: []byte{0, 0, 0, 9}, broken: true},
		"http":                   {in: []byte("GET / HTTP/1.1\r\n\r\n"), broken: true},
		"nothing":                {},
		"half a header":          {in: hail(optGo, "v@n#t")[:9]},
		"half a name":            {in: hail(optGo, "v@n#t")[:25]},
		"options without an end": {in: append([]byte{0, 0, 0, 3}, bytes.Repeat(raw(3, 0, "")[4:], maxOptions)...), broken: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := shake(talk{bytes.NewReader(c.in), &out}, yes{})
			if (err == nil) != c.opened || errors.Is(err, errBroken) != c.broken {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(out.String(), c.words) {
				t.Fatalf("answer %q, want the words %q", out.String(), c.words)
			}
		})
	}
}

// FuzzShake: whatever a client sends, the server's half ends, and opens nothing
// but what has the form of an export.
func FuzzShake(f *testing.F) {
	f.Add(hail(optGo, "v@n#t"))
	f.Add(raw(optGo, maxOption+1, "x"))
	f.Add(raw(optAbort, 0, ""))
	f.Fuzz(func(t *testing.T, in []byte) {
		if err := shake(talk{bytes.NewReader(in), io.Discard}, yes{}); err == nil && !bytes.Contains(in, []byte("@")) {
			t.Fatalf("opened by %q", in)
		}
	})
}

// FuzzGreet: whatever a server sends, the client's half ends.
func FuzzGreet(f *testing.F) {
	var out bytes.Buffer
	_ = shake(talk{bytes.NewReader(hail(optGo, "v@n#t")), &out}, yes{})
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		if s, err := greet(talk{bytes.NewReader(in), io.Discard}, optGo, "v@n#t"); err == nil && s.size <= 0 && len(in) < 18 {
			t.Fatalf("greeted by %q", in)
		}
	})
}

// FuzzServe: after the handshake a client may send anything; the server goes on
// for others, and the file keeps its size.
func FuzzServe(f *testing.F) {
	f.Add(request{command: cmdWrite, length: 4}.append(nil))
	f.Add(request{command: cmdRead, length: maxPayload + 1}.append(nil))
	f.Add(request{command: cmdWrite, length: 1<<32 - 1}.append(nil))
	f.Add(request{command: cmdWriteZeroes, offset: 1<<64 - 1, length: 7}.append(nil))
	f.Add(append(request{command: cmdFlush, flags: 0xffff}.append(nil), request{command: cmdDisconnect}.append(nil)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := newBench(t)
		nc, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := greet(nc, optGo, b.rights.give("v", "dpu-1", "t1")); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = nc.Write(in); _ = nc.(*net.TCPConn).CloseWrite() }()
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("the server does not hang up")
		}
		d := open(t, b.address, b.rights.give("v", "dpu-2", "t2"), 0)
		if _, err := d.WriteAt([]byte("x"), 0); err != nil || d.Size() != volumeSize {
			t.Fatalf("the next client: %v, size %d", err, d.Size())
		}
	})
}

func TestExportNames(t *testing.T) {
	for _, e := range []Export{{Volume: "v", Node: "n", Token: "t"}, {Volume: "pvc-1", Node: "a@b#c", Token: "t"}} {
		got, err := ParseExport(e.String())
		if err != nil || got != e {
			t.Errorf("%+v reads back as %+v, %v", e, got, err)
		}
		if e.Fingerprint() == (Export{Volume: e.Volume, Node: e.Node, Token: "u"}).Fingerprint() {
			t.Error("two tokens have one fingerprint")
		}
	}
}

func TestAdmin(t *testing.T) {
	b := newBench(t)
	socket := filepath.Join(t.TempDir(), "a")
	if _, err := NewAdmin(socket, "s1", time.Second).Sessions(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("without a target: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	l, err := ListenAdmin(socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- ServeAdmin(ctx, l, b.AdminHandler("s1")) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	if _, err := d.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	admin := NewAdmin(socket, "s1", 10*time.Second)
	sessions, err := admin.Sessions(t.Context())
	if err != nil || len(sessions) != 1 || sessions[0].Volume != "v" || sessions[0].Node != "dpu-1" || sessions[0].Remote == "" {
		t.Fatalf("%+v, %v", sessions, err)
	}
	if err := NewAdmin(socket, "s2", time.Second).Revoke(t.Context(), "v", "dpu-1"); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "s1") {
		t.Fatalf("a target of another store gives a receipt: %v", err)
	}
	if err := admin.Revoke(t.Context(), "", "dpu-1"); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("no volume: %v", err)
	}
	b.rights.take("v", "dpu-1")
	if err := admin.Revoke(t.Context(), "v", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	if stats, err := admin.Stats(t.Context()); err != nil || stats.Writes != 1 || len(b.Sessions()) != 0 {
		t.Fatalf("%+v, %v, sessions %+v", stats, err, b.Sessions())
	}
}

func TestAdminTakesNoGarbageForAReceipt(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"html":        func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"empty json":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"other store": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"store":"s2"}`)) },
		"error":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"hang up":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "a")
			l, err := ListenAdmin(socket)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(h)
			server.Listener = l
			server.Start()
			defer server.Close()
			if err := NewAdmin(socket, "s1", 5*time.Second).Revoke(t.Context(), "v", "n"); !errors.Is(err, ErrUnreachable) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

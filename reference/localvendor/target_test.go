package localvendor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// revoker is a target whose answers a test chooses.
type revoker func(volumeID, node string) error

func (r revoker) Revoke(_ context.Context, volumeID, node string) error { return r(volumeID, node) }

func willing(string, string) error { return nil }

func targetOptions(r Revoker) Options {
	return Options{Target: &Target{Address: "target:10809", Revoker: r}}
}

// exportOf is what the publish context of a node opens at the target.
func exportOf(t *testing.T, publish map[string]string) blocktarget.Export {
	t.Helper()
	e, err := blocktarget.ParseExport(publish[records.ContextTargetExport])
	if err != nil || publish[records.ContextTargetAddress] != "target:10809" || publish[records.ContextPath] != "" {
		t.Fatalf("%v, %v", err, publish[records.ContextTargetAddress])
	}
	return e
}

// opens reports whether the target would let the export in.
func opens(t *testing.T, dir string, e blocktarget.Export) bool {
	t.Helper()
	g, err := Grants{Dir: dir}.Grant(e.Volume, e.Node)
	if err != nil && !errors.Is(err, blocktarget.ErrDenied) {
		t.Fatal(err)
	}
	return err == nil && g.TokenHash == blocktarget.HashToken(e.Token)
}

func attach(t *testing.T, s *Storage, volume, node string) blocktarget.Export {
	t.Helper()
	a, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: volume, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	return exportOf(t, a.PublishContext)
}

func TestKeepsTheContractThroughATarget(t *testing.T) {
	t.Run("Attachments", func(t *testing.T) {
		provisionertest.TestAttachments(t, func(t *testing.T) (provisioner.Volumes, provisioner.Attachments) {
			s := openStorage(t, targetOptions(revoker(willing)))
			return s, s
		})
	})
}

func TestDetachFailsClosed(t *testing.T) {
	var away atomic.Bool
	var s *Storage
	var e blocktarget.Export
	s = openStorage(t, targetOptions(revoker(func(volume, node string) error {
		if volume != "one" || node != "dpu-1" {
			t.Errorf("asked to take %s from %s", volume, node)
		}
		if opens(t, s.dir, e) {
			t.Error("the target is asked before the right is gone")
		}
		if away.Load() {
			return errors.New("no answer")
		}
		return nil
	})))
	ctx := t.Context()
	create(t, s, spec("one"))
	e = attach(t, s, "one", "dpu-1")
	if !opens(t, s.dir, e) {
		t.Fatal("what was attached does not open")
	}
	away.Store(true)
	for range 2 {
		if err := s.Detach(ctx, "one", "dpu-1"); !errors.Is(err, provisioner.ErrUnavailable) {
			t.Fatalf("detach with the target away: %v", err)
		}
	}
	if _, err := s.Attach(ctx, provisioner.AttachSpec{VolumeID: "one", Node: "dpu-2"}); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("attach elsewhere without a receipt: %v", err)
	}
	if _, err := s.Attach(ctx, provisioner.AttachSpec{VolumeID: "one", Node: "dpu-1"}); !errors.Is(err, provisioner.ErrBusy) {
		t.Fatalf("attach again in the middle of a detach: %v", err)
	}
	if err := s.Delete(ctx, "one"); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("delete without a receipt: %v", err)
	}
	if err := s.Close(); err != nil { // as after a restart of the controller
		t.Fatal(err)
	}
	s = openStorage(t, Options{TargetDir: s.dir, Target: s.target})
	away.Store(false)
	if err := s.Detach(ctx, "one", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	if second := attach(t, s, "one", "dpu-2"); !opens(t, s.dir, second) || opens(t, s.dir, e) {
		t.Fatal("the wrong one of two nodes has the right")
	}
}

func TestTokens(t *testing.T) {
	s := openStorage(t, targetOptions(revoker(willing)))
	create(t, s, spec("one"))
	first := attach(t, s, "one", "dpu-1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStorage(t, Options{TargetDir: s.dir, Target: s.target})
	if again := attach(t, s, "one", "dpu-1"); again != first {
		t.Fatal("a repeated attach after a restart gives another token")
	}
	stored, err := os.ReadFile(s.recordPath("one"))
	if err != nil || strings.Contains(string(stored), first.Token) || len(first.Token) != 32 {
		t.Fatalf("the record tells the token, or it is short: %v", err)
	}
	if st, err := os.Stat(filepath.Join(s.dir, keyFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the key: %v, %v", st.Mode(), err)
	}
	if err := s.Detach(t.Context(), "one", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	second := attach(t, s, "one", "dpu-1")
	if second.Token == first.Token || opens(t, s.dir, first) || !opens(t, s.dir, second) {
		t.Fatal("the token of an earlier attachment is good again")
	}
	if other := (blocktarget.Export{Volume: "one", Node: "dpu-2", Token: second.Token}); opens(t, s.dir, other) {
		t.Fatal("a node uses the right of another")
	}
}

func TestFilesAndTargetsDoNotMix(t *testing.T) {
	s := openStorage(t, targetOptions(revoker(willing)))
	create(t, s, spec("one"))
	attach(t, s, "one", "dpu-1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	plain := openStorage(t, Options{TargetDir: s.dir})
	if err := plain.Detach(t.Context(), "one", "dpu-1"); !errors.Is(err, provisioner.ErrPrecondition) {
		t.Fatalf("a controller without a target gives a receipt: %v", err)
	}
	create(t, plain, spec("two"))
	if _, err := plain.Attach(t.Context(), provisioner.AttachSpec{VolumeID: "two", Node: "dpu-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := (Grants{Dir: s.dir}).Grant("two", "dpu-1"); !errors.Is(err, blocktarget.ErrDenied) {
		t.Fatalf("a right at the target that was never given: %v", err)
	}
	if _, err := (Grants{Dir: s.dir}).Grant("../one", "dpu-1"); !errors.Is(err, blocktarget.ErrDenied) {
		t.Fatalf("a name that climbs: %v", err)
	}
}

func TestGrantsAreReadOnlyWhereTheUseIs(t *testing.T) {
	s := openStorage(t, targetOptions(revoker(willing)))
	shared := spec("one")
	shared.AccessModes = []provisioner.AccessMode{provisioner.ReadWriteMany, provisioner.ReadOnlyMany}
	create(t, s, shared)
	cases := map[string]struct {
		spec provisioner.AttachSpec
		want bool
	}{
		"writer":         {provisioner.AttachSpec{}, false},
		"read only":      {provisioner.AttachSpec{ReadOnly: true}, true},
		"read only many": {provisioner.AttachSpec{AccessModes: []provisioner.AccessMode{provisioner.ReadOnlyMany}}, true},
	}
	for name, c := range cases {
		c.spec.VolumeID, c.spec.Node = "one", name
		if _, err := s.Attach(t.Context(), c.spec); err != nil {
			t.Fatal(err)
		}
		if g, err := (Grants{Dir: s.dir}).Grant("one", name); err != nil || g.ReadOnly != c.want {
			t.Errorf("%s: read only %t, %v", name, g.ReadOnly, err)
		}
	}
}

func TestDamagedKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StoreID(dir); !errors.Is(err, provisioner.ErrPrecondition) {
		t.Errorf("store: %v", err)
	}
	o := targetOptions(revoker(willing))
	o.TargetDir = dir
	if _, err := Open(o); !errors.Is(err, provisioner.ErrPrecondition) {
		t.Errorf("open: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil {
		t.Fatal(err)
	}
	one, err := StoreID(dir)
	two, again := StoreID(dir)
	if err != nil || again != nil || one != two || one == "" {
		t.Errorf("%q %v, %q %v", one, err, two, again)
	}
}

// TestDetachEndsAWriter holds the whole of it together: controller, target and
// the client of a DPU that never learns that it was put out.
func TestDetachEndsAWriter(t *testing.T) {
	dir := t.TempDir()
	store, err := StoreID(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := blocktarget.NewServer(blocktarget.Options{Grants: Grants{Dir: dir}})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "a")
	unix, err := blocktarget.ListenAdmin(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- server.Serve(ctx, tcp) }()
	go func() { done <- blocktarget.ServeAdmin(ctx, unix, server.AdminHandler(store)) }()
	defer func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	}()
	s := openStorage(t, Options{TargetDir: dir, Target: &Target{Address: "target:10809", Revoker: blocktarget.NewAdmin(socket, store, 10*time.Second)}})
	create(t, s, spec("one"))
	device, err := blocktarget.OpenDevice(ctx, blocktarget.DeviceOptions{Address: tcp.Addr().String(), Export: attach(t, s, "one", "dpu-1").String()})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	var acked atomic.Int64
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := byte(0); ; n++ {
			if _, err := device.WriteAt([]byte{n}, int64(n)); err != nil {
				ended <- err
				return
			}
			if acked.Add(1) == 500 {
				close(started)
			}
		}
	}()
	<-started
	if err := s.Detach(ctx, "one", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(s.imagePath("one"))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, syscall.EIO) || !errors.Is(err, blocktarget.ErrDenied) {
		t.Fatalf("the writer ended with %v", err)
	}
	after, err := os.ReadFile(s.imagePath("one"))
	if err != nil || string(before) != string(after) {
		t.Fatal("the volume changed after detach had answered")
	}
}

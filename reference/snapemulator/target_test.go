package snapemulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// oneGrant is the right of dpu-1 to the volume "v", by the token "t".
type oneGrant struct{ file string }

func (g oneGrant) Grant(volume, node string) (blocktarget.Grant, error) {
	if volume != "v" || node != "dpu-1" {
		return blocktarget.Grant{}, blocktarget.ErrDenied
	}
	return blocktarget.Grant{File: g.file, TokenHash: blocktarget.HashToken("t")}, nil
}

// runTarget serves one volume; stop ends it.
func runTarget(t *testing.T) (address string, stop func()) {
	t.Helper()
	return serveFile(t, filepath.Join(t.TempDir(), "v.img"))
}

func serveFile(t *testing.T, file string) (address string, stop func()) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<20)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- blocktarget.NewServer(blocktarget.Options{Grants: oneGrant{file}}).Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if cancel(); stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func TestBdevOverATarget(t *testing.T) {
	address, stop := runTarget(t)
	s, ctx := snapemulatortest.Start(t, snapemulator.Options{IOTimeout: time.Second}), t.Context()
	spec := snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@dpu-1#t"}
	if name, err := s.BdevMoorTargetCreate(ctx, spec); name != "vol" || err != nil {
		t.Fatal(name, err)
	}
	bdevs, err := s.BdevGetBdevs(ctx, "vol")
	if err != nil || bdevs[0].SizeBytes() != 1<<20 {
		t.Fatalf("%+v, %v", bdevs, err)
	}
	want := &snaprpc.TargetBdev{Address: address, Volume: "v", Node: "dpu-1", Fingerprint: blocktarget.Export{Volume: "v", Node: "dpu-1", Token: "t"}.Fingerprint()}
	if diff := cmp.Diff(want, bdevs[0].DriverSpecific.MoorTarget); diff != "" {
		t.Fatal(diff)
	}
	var all json.RawMessage
	if err := s.Call(ctx, "bdev_get_bdevs", nil, &all); err != nil || strings.Contains(string(all), "#t") {
		t.Fatalf("the token is told: %s, %v", all, err)
	}
	if methods, err := s.RPCGetMethods(ctx); err != nil || !slices.Contains(methods, "bdev_moor_target_create") || !slices.Contains(methods, "bdev_moor_target_delete") {
		t.Fatalf("methods %v, %v", methods, err)
	}
	if _, err := s.BdevMoorTargetCreate(ctx, spec); !snaprpc.IsExists(err) {
		t.Fatalf("made twice: %v", err)
	}
	if err := s.BdevAioDelete(ctx, "vol"); !snaprpc.IsNotFound(err) {
		t.Fatalf("deleted as an AIO bdev: %v", err)
	}
	stop()
	if err := s.BdevMoorTargetDelete(ctx, "vol"); err != nil {
		t.Fatalf("delete with the target gone and no write in doubt: %v", err)
	}
}

func TestTargetRefusals(t *testing.T) {
	address, stop := runTarget(t)
	s := snapemulatortest.Start(t, snapemulator.Options{})
	code := func(spec snaprpc.TargetSpec) int {
		_, err := s.BdevMoorTargetCreate(t.Context(), spec)
		c, _ := snaprpc.Code(err)
		if err != nil && strings.Contains(err.Error(), "#stale") {
			t.Errorf("the token is told: %v", err)
		}
		return c
	}
	cases := map[string]struct {
		spec snaprpc.TargetSpec
		want int
	}{
		"a stale token": {snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@dpu-1#stale"}, snaprpc.CodeDenied},
		"another DPU":   {snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@dpu-2#t"}, snaprpc.CodeDenied},
		"no form":       {snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v"}, snaprpc.CodeInvalid},
		"no target":     {snaprpc.TargetSpec{Name: "vol", Address: "127.0.0.1:1", Export: "v@dpu-1#t"}, snaprpc.CodeUnreachable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := code(c.spec); got != c.want {
				t.Errorf("code %d, want %d", got, c.want)
			}
		})
	}
	stop()
	if got := code(snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@dpu-1#t"}); got != snaprpc.CodeUnreachable {
		t.Errorf("code %d after the target ended", got)
	}
}

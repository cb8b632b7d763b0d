package exposures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// service tells of the ways of its devices, or says nothing until it is given up.
type service struct {
	provisioner.DPU
	device         string
	hangs, refuses bool
}

func (s service) Paths(ctx context.Context, _ []string) ([]provisioner.Path, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", provisioner.ErrSilent, ctx.Err())
	}
	if s.refuses {
		return nil, provisioner.ErrUnavailable
	}
	return []provisioner.Path{{Device: s.device}}, nil
}

// TestPathsOfSeveralServices: one that hangs holds up none of the others, and is not heard;
// one that refuses to tell is.
func TestPathsOfSeveralServices(t *testing.T) {
	root := t.TempDir()
	known := map[string]service{"a": {device: "of-a"}, "b": {hangs: true}, "c": {device: "of-c"}, "d": {refuses: true}}
	for name := range known {
		dir := filepath.Join(root, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, socketName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	e := New(Options{Root: root, Open: func(socket string) provisioner.DPU { return known[filepath.Base(filepath.Dir(socket))] }})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		paths, heard, err := e.Paths(ctx, []string{"of-a", "of-b", "of-c"})
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(heard, []string{"a", "c", "d"}) {
			t.Fatalf("heard %v, %v", heard, err)
		}
		if len(paths) != 2 || paths[0].Device != "of-a" || paths[1].Device != "of-c" {
			t.Errorf("paths %+v", paths)
		}
	})
}

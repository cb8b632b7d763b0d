package devices

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/filesystems"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// path is a data path that records what it is asked.
type path struct{ log []string }

func (p *path) Pause(ctx context.Context, ids []string, during func(context.Context) error) error {
	p.log = append(p.log, ids...)
	return during(ctx)
}

func (p *path) Adjust(_ context.Context, id string) error {
	p.log = append(p.log, "adjust "+id)
	return nil
}

// TestLocalLeadsToEither: a volume is opened as what it was attached as, and what is
// mounted nowhere is the target's.
func TestLocalLeadsToEither(t *testing.T) {
	machine, err := NewMachine(nil, t.TempDir(), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := filesystems.New(filesystems.Options{TargetDir: t.TempDir(), Dir: t.TempDir(), Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	target := &path{}
	l, ctx := Local{Devices: machine, Filesystems: mounts, Target: target}, t.Context()
	for _, context := range []map[string]string{nil, {records.ContextFilesystem: "one.img"}} {
		want := provisioner.ErrInvalid
		if context != nil {
			want = provisioner.ErrPrecondition // it is no device, and not attached here
		}
		if _, err := l.Open(ctx, provisioner.OpenSpec{VolumeID: "one", Mode: provisioner.Filesystem, PublishContext: context}); !errors.Is(err, want) {
			t.Errorf("open by %v: %v, want %v", context, err, want)
		}
	}
	if _, err := l.Lookup(ctx, "one"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("lookup: %v", err)
	}
	if _, err := l.Rescan(ctx, "one", 1); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("rescan: %v", err)
	}
	if open, err := l.List(ctx); err != nil || len(open) != 0 {
		t.Errorf("list: %v, %v", open, err)
	}
	for _, id := range []string{"one", "../one"} {
		if err := l.Close(ctx, id, ""); err != nil {
			t.Errorf("close %s, which is gone: %v", id, err)
		}
	}
	ran := 0
	if err := errors.Join(l.Pause(ctx, []string{"one", "two"}, func(context.Context) error { ran++; return nil }), l.Adjust(ctx, "one")); err != nil || ran != 1 {
		t.Errorf("pause and adjust: %v, ran %d times", err, ran)
	}
	if d := cmp.Diff([]string{"one", "two", "adjust one"}, target.log); d != "" {
		t.Error(d)
	}
}

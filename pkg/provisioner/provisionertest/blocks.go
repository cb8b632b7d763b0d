package provisionertest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestBlocks checks the contract of provisioner.Blocks. Each case calls open for an
// empty platform, which has Snapshots and a Write.
func TestBlocks(t *testing.T, open func(t *testing.T) DataUnderTest) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, DataUnderTest){
		"told of":        blocksTold,
		"asked wrongly":  blocksWrongly,
		"ended by found": blocksEnded,
	} {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

// snapshotOf makes a snapshot of a volume.
func (d DataUnderTest) snapshotOf(t *testing.T, name, volume string) provisioner.Snapshot {
	t.Helper()
	s, err := d.Snapshots.Create(suiteContext(t), provisioner.SnapshotSpec{Name: name, VolumeID: volume})
	wantNil(t, "make a snapshot", err)
	return s
}

// told collects ranges, and checks that they are in order and apart, inside of the
// snapshot, and none is over before from.
func told(t *testing.T, size, from int64, ask func(func(provisioner.Range) error) error) (out []provisioner.Range) {
	t.Helper()
	end := int64(-1)
	wantNil(t, "ask for blocks", ask(func(r provisioner.Range) error {
		if r.Length <= 0 || r.Offset <= end || r.Offset+r.Length > size || r.Offset+r.Length <= from {
			t.Errorf("range %+v after one that ended at %d, from %d in %d bytes", r, end, from, size)
		}
		end = r.Offset + r.Length
		out = append(out, r)
		return nil
	}))
	return out
}

func blocksTold(t *testing.T, d DataUnderTest) {
	ctx := suiteContext(t)
	v, err := d.Volumes.Create(ctx, blockSpec("one"))
	wantNil(t, "create", err)
	empty := d.snapshotOf(t, "empty", v.ID)
	d.write(t, v.ID, "text")
	first, second := d.snapshotOf(t, "first", v.ID), d.snapshotOf(t, "second", v.ID)
	d.write(t, v.ID, "other")
	third := d.snapshotOf(t, "third", v.ID)
	for what, c := range map[string]struct {
		from int64
		ask  func(context.Context, int64, func(provisioner.Range) error) error
		some bool
	}{
		"data": {0, func(ctx context.Context, from int64, found func(provisioner.Range) error) error {
			return d.Blocks.Allocated(ctx, first.ID, from, found)
		}, true},
		"data from the end": {first.SizeBytes, func(ctx context.Context, from int64, found func(provisioner.Range) error) error {
			return d.Blocks.Allocated(ctx, first.ID, from, found)
		}, false},
		"no change": {0, func(ctx context.Context, from int64, found func(provisioner.Range) error) error {
			return d.Blocks.Changed(ctx, first.ID, second.ID, from, found)
		}, false},
		"what was written": {0, func(ctx context.Context, from int64, found func(provisioner.Range) error) error {
			return d.Blocks.Changed(ctx, empty.ID, first.ID, from, found)
		}, true},
		"what was written anew": {0, func(ctx context.Context, from int64, found func(provisioner.Range) error) error {
			return d.Blocks.Changed(ctx, first.ID, third.ID, from, found)
		}, true},
	} {
		got := told(t, first.SizeBytes, c.from, func(found func(provisioner.Range) error) error { return c.ask(ctx, c.from, found) })
		if (len(got) > 0 && got[0].Offset == 0) != c.some {
			t.Errorf("%s: told of %+v", what, got)
		}
	}
	twice := func() []provisioner.Range {
		return told(t, first.SizeBytes, 0, func(found func(provisioner.Range) error) error { return d.Blocks.Allocated(ctx, first.ID, 0, found) })
	}
	if diff := cmp.Diff(twice(), twice()); diff != "" {
		t.Errorf("asked twice:\n%s", diff)
	}
}

func blocksWrongly(t *testing.T, d DataUnderTest) {
	ctx, nothing := suiteContext(t), func(provisioner.Range) error { return errors.New("something was found") }
	one, two := d.volume(t, "one", "1"), d.volume(t, "two", "2")
	a, b := d.snapshotOf(t, "a", one.ID), d.snapshotOf(t, "b", two.ID)
	wantError(t, "data of what is not there", d.Blocks.Allocated(ctx, "no-such-snapshot", 0, nothing), provisioner.ErrNotFound)
	wantError(t, "change from what is not there", d.Blocks.Changed(ctx, "no-such-snapshot", a.ID, 0, nothing), provisioner.ErrNotFound)
	wantError(t, "change to what is not there", d.Blocks.Changed(ctx, a.ID, "no-such-snapshot", 0, nothing), provisioner.ErrNotFound)
	wantError(t, "change between volumes", d.Blocks.Changed(ctx, a.ID, b.ID, 0, nothing), provisioner.ErrInvalid)
}

func blocksEnded(t *testing.T, d DataUnderTest) {
	stop := errors.New("stop")
	s := d.snapshotOf(t, "a", d.volume(t, "one", "1").ID)
	wantError(t, "data, ended", d.Blocks.Allocated(suiteContext(t), s.ID, 0, func(provisioner.Range) error { return stop }), stop)
	wantError(t, "data, canceled", d.Blocks.Allocated(canceled(t), s.ID, 0, func(provisioner.Range) error { return nil }), context.Canceled)
}

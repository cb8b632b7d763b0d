package provisionertest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// DataUnderTest is an empty platform, and a way to its volumes' data.
type DataUnderTest struct {
	provisioner.Platform
	// Write and Read reach the first bytes of a volume. Where they are nil,
	// what volumes hold is not checked.
	Write func(t *testing.T, volumeID, text string)
	Read  func(t *testing.T, volumeID string) string
}

// volume makes a volume that holds text.
func (d DataUnderTest) volume(t *testing.T, name, text string) provisioner.Volume {
	t.Helper()
	v, err := d.Volumes.Create(suiteContext(t), blockSpec(name))
	wantNil(t, "create", err)
	d.write(t, v.ID, text)
	return v
}

func (d DataUnderTest) write(t *testing.T, id, text string) {
	t.Helper()
	if d.Write != nil {
		d.Write(t, id, text)
	}
}

func (d DataUnderTest) wantText(t *testing.T, id, want string) {
	t.Helper()
	if d.Read == nil {
		return
	}
	if got := d.Read(t, id); got[:min(len(want), len(got))] != want {
		t.Fatalf("volume %s holds %q, want %q", id, got[:min(len(want), len(got))], want)
	}
}

// TestSnapshots checks the contracts of provisioner.Snapshots, Groups and
// Copies; those of them that a platform has not are left out.
func TestSnapshots(t *testing.T, open func(t *testing.T) DataUnderTest) {
	t.Helper()
	type faces struct{ snapshots, groups, copies bool }
	cases := map[string]struct {
		needs faces
		run   func(*testing.T, DataUnderTest)
	}{
		"snapshot":             {faces{snapshots: true}, snapshotKeeps},
		"snapshot repeated":    {faces{snapshots: true}, snapshotRepeated},
		"snapshot wrongly":     {faces{snapshots: true}, snapshotWrongly},
		"snapshots are listed": {faces{snapshots: true}, snapshotsListed},
		"restore":              {faces{snapshots: true, copies: true}, restores},
		"copy":                 {faces{copies: true}, copies},
		"copy wrongly":         {faces{copies: true}, copyWrongly},
		"group":                {faces{groups: true, snapshots: true}, groupKeeps},
		"group wrongly":        {faces{groups: true}, groupWrongly},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			has := faces{snapshots: d.Snapshots != nil, groups: d.Groups != nil, copies: d.Copies != nil}
			if c.needs.snapshots && !has.snapshots || c.needs.groups && !has.groups || c.needs.copies && !has.copies {
				t.Skip("the platform does not offer that")
			}
			c.run(t, d)
		})
	}
}

// snap makes a snapshot and waits until volumes can be made of it.
func (d DataUnderTest) snap(t *testing.T, name, volume string) provisioner.Snapshot {
	t.Helper()
	var got provisioner.Snapshot
	ctx := suiteContext(t)
	for !got.Ready {
		err := untilCertain(ctx, func() (err error) {
			got, err = d.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: name, VolumeID: volume})
			return err
		})
		wantNil(t, "make a snapshot", err)
	}
	return got
}

func snapshotKeeps(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "before")
	s := d.snap(t, "s1", v.ID)
	if s.ID == "" || s.VolumeID != v.ID || s.SizeBytes != v.CapacityBytes || s.Created.IsZero() || s.GroupID != "" {
		t.Fatalf("got %+v", s)
	}
	wantNil(t, "delete the volume of a snapshot", d.Volumes.Delete(ctx, v.ID))
	got, err := d.Snapshots.Get(ctx, s.ID)
	wantNil(t, "get a snapshot whose volume is gone", err)
	if diff := cmp.Diff(s, got); diff != "" {
		t.Fatalf("(-made +got):\n%s", diff)
	}
	wantNil(t, "delete", d.Snapshots.Delete(ctx, s.ID))
	wantNil(t, "delete again", d.Snapshots.Delete(ctx, s.ID))
	_, err = d.Snapshots.Get(ctx, s.ID)
	wantError(t, "get what is deleted", err, provisioner.ErrNotFound)
}

func snapshotRepeated(t *testing.T, d DataUnderTest) {
	ctx := suiteContext(t)
	one, two := d.volume(t, "one", "1"), d.volume(t, "two", "2")
	first := d.snap(t, "s1", one.ID)
	d.write(t, one.ID, "later")
	if diff := cmp.Diff(first, d.snap(t, "s1", one.ID)); diff != "" {
		t.Fatalf("a repeat differs (-first +second):\n%s", diff)
	}
	_, err := d.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: "s1", VolumeID: two.ID})
	wantError(t, "the name for another volume", err, provisioner.ErrExists)
	_, errs := atOnce(func(int) (struct{}, error) {
		return struct{}{}, untilCertain(ctx, func() error {
			_, err := d.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: "s2", VolumeID: two.ID})
			return err
		})
	})
	for _, err := range errs {
		wantNil(t, "make it at once", err)
	}
	if all := d.listSnapshots(t, provisioner.SnapshotFilter{}, 0); len(all) != 2 {
		t.Fatalf("%d snapshots, want 2", len(all))
	}
}

func snapshotWrongly(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "")
	_, err := d.Snapshots.Create(ctx, provisioner.SnapshotSpec{VolumeID: v.ID})
	wantError(t, "no name", err, provisioner.ErrInvalid)
	_, err = d.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: "s"})
	wantError(t, "no volume", err, provisioner.ErrInvalid)
	_, err = d.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: "s", VolumeID: "no-such-volume"})
	wantError(t, "an unknown volume", err, provisioner.ErrNotFound)
	wantNil(t, "delete what never was", d.Snapshots.Delete(ctx, "no-such-snapshot"))
	_, err = d.Snapshots.Get(ctx, "no-such-snapshot")
	wantError(t, "get what never was", err, provisioner.ErrNotFound)
	_, err = d.Snapshots.Create(canceled(t), provisioner.SnapshotSpec{Name: "s", VolumeID: v.ID})
	if err != nil {
		wantError(t, "with an ended context", err, context.Canceled)
	}
	d.snap(t, "s", v.ID)
}

// listSnapshots walks over pages of at most most.
func (d DataUnderTest) listSnapshots(t *testing.T, f provisioner.SnapshotFilter, most int) []string {
	t.Helper()
	var ids []string
	for page := (provisioner.Page{Max: most}); ; {
		got, next, err := d.Snapshots.List(suiteContext(t), f, page)
		wantNil(t, "list", err)
		if most > 0 && len(got) > most {
			t.Fatalf("a page of %d, at most %d were asked for", len(got), most)
		}
		for _, s := range got {
			ids = append(ids, s.ID)
		}
		if next == "" {
			break
		}
		page.After = next
	}
	if !slices.IsSorted(ids) {
		t.Fatalf("not in order: %v", ids)
	}
	return ids
}

func snapshotsListed(t *testing.T, d DataUnderTest) {
	one, two := d.volume(t, "one", ""), d.volume(t, "two", "")
	var ofOne, all []string
	for i := range 3 {
		ofOne = append(ofOne, d.snap(t, fmt.Sprintf("a%d", i), one.ID).ID)
		all = append(all, d.snap(t, fmt.Sprintf("b%d", i), two.ID).ID)
	}
	all = append(all, ofOne...)
	slices.Sort(all)
	slices.Sort(ofOne)
	for _, most := range []int{0, 1, 2, 3, 10} {
		if diff := cmp.Diff(all, d.listSnapshots(t, provisioner.SnapshotFilter{}, most)); diff != "" {
			t.Fatalf("all, %d a page (-want +got):\n%s", most, diff)
		}
		if diff := cmp.Diff(ofOne, d.listSnapshots(t, provisioner.SnapshotFilter{VolumeID: one.ID}, most)); diff != "" {
			t.Fatalf("of one volume, %d a page (-want +got):\n%s", most, diff)
		}
	}
	if got := d.listSnapshots(t, provisioner.SnapshotFilter{VolumeID: "no-such-volume"}, 0); len(got) != 0 {
		t.Fatalf("of an unknown volume: %v", got)
	}
}

func restores(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "before")
	s := d.snap(t, "s1", v.ID)
	d.write(t, v.ID, "after!")
	from := provisioner.Source{SnapshotID: s.ID}
	made, err := d.Copies.CreateFrom(ctx, blockSpec("copy"), from)
	wantNil(t, "restore", err)
	d.wantText(t, made.ID, "before")
	d.wantText(t, v.ID, "after!")
	if made.Source != from || made.CapacityBytes < s.SizeBytes {
		t.Fatalf("got %+v", made)
	}
	d.write(t, made.ID, "mine")
	d.wantSameCopy(t, made.ID, blockSpec("copy"), from)
	wantNil(t, "delete the snapshot of a copy", d.Snapshots.Delete(ctx, s.ID))
	d.wantSameCopy(t, made.ID, blockSpec("copy"), from)
	d.wantText(t, made.ID, "mine")
	_, err = d.Copies.CreateFrom(ctx, blockSpec("another"), from)
	wantError(t, "restore what is deleted", err, provisioner.ErrNotFound)
}

// wantSameCopy asks again for a copy that is there, which is returned, also if its
// source is gone meanwhile.
func (d DataUnderTest) wantSameCopy(t *testing.T, id string, spec provisioner.VolumeSpec, from provisioner.Source) {
	t.Helper()
	again, err := d.Copies.CreateFrom(suiteContext(t), spec, from)
	wantNil(t, "ask for a copy again", err)
	if again.ID != id {
		t.Fatalf("asked again, the copy is %s, was %s", again.ID, id)
	}
}

func copies(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "before")
	larger := blockSpec("copy")
	larger.CapacityBytes = 2 * v.CapacityBytes
	made, err := d.Copies.CreateFrom(ctx, larger, provisioner.Source{VolumeID: v.ID})
	wantNil(t, "copy", err)
	if made.CapacityBytes < larger.CapacityBytes {
		t.Fatalf("the copy has %d bytes, want %d", made.CapacityBytes, larger.CapacityBytes)
	}
	d.write(t, v.ID, "after!")
	d.wantText(t, made.ID, "before")
	d.wantSameCopy(t, made.ID, larger, provisioner.Source{VolumeID: v.ID})
	wantNil(t, "delete the source of a copy", d.Volumes.Delete(ctx, v.ID))
	d.wantSameCopy(t, made.ID, larger, provisioner.Source{VolumeID: v.ID})
	d.wantText(t, made.ID, "before")
	smaller := blockSpec("small")
	smaller.CapacityBytes = mib
	small, err := d.Copies.CreateFrom(ctx, smaller, provisioner.Source{VolumeID: made.ID})
	wantNil(t, "copy into at least less", err)
	if small.CapacityBytes < made.CapacityBytes {
		t.Fatalf("the copy of %d bytes has %d", made.CapacityBytes, small.CapacityBytes)
	}
}

func copyWrongly(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "")
	try := func(what string, from provisioner.Source, change func(*provisioner.VolumeSpec), want ...error) {
		t.Helper()
		spec := blockSpec("copy")
		change(&spec)
		_, err := d.Copies.CreateFrom(ctx, spec, from)
		wantError(t, what, err, want...)
	}
	same := func(*provisioner.VolumeSpec) {}
	of := provisioner.Source{VolumeID: v.ID}
	try("no source", provisioner.Source{}, same, provisioner.ErrInvalid)
	try("two sources", provisioner.Source{VolumeID: v.ID, SnapshotID: "s"}, same, provisioner.ErrInvalid)
	try("an unknown volume", provisioner.Source{VolumeID: "no-such-volume"}, same, provisioner.ErrNotFound)
	try("an unknown snapshot", provisioner.Source{SnapshotID: "no-such-snapshot"}, same, provisioner.ErrNotFound)
	try("another mode", of, func(s *provisioner.VolumeSpec) { s.Mode = provisioner.Filesystem }, provisioner.ErrInvalid, provisioner.ErrUnsupported)
	try("a limit below the source", of, func(s *provisioner.VolumeSpec) { s.CapacityBytes, s.LimitBytes = mib, 2*mib }, provisioner.ErrOutOfRange)
	_, err := d.Copies.CreateFrom(ctx, blockSpec("one"), of)
	wantError(t, "over a volume that began empty", err, provisioner.ErrExists, provisioner.ErrBusy)
	_, err = d.Copies.CreateFrom(ctx, blockSpec("copy"), of)
	wantNil(t, "copy", err)
	_, err = d.Volumes.Create(ctx, blockSpec("copy"))
	wantError(t, "an empty volume in place of a copy", err, provisioner.ErrExists)
}

func groupKeeps(t *testing.T, d DataUnderTest) {
	ctx := suiteContext(t)
	one, two := d.volume(t, "one", "1111"), d.volume(t, "two", "2222")
	spec := provisioner.GroupSpec{Name: "g", VolumeIDs: []string{two.ID, one.ID}}
	g, err := d.Groups.Create(ctx, spec)
	wantNil(t, "make a group", err)
	if g.ID == "" || g.Created.IsZero() || len(g.Snapshots) != 2 {
		t.Fatalf("got %+v", g)
	}
	spec.VolumeIDs = []string{one.ID, two.ID}
	again, err := d.Groups.Create(ctx, spec)
	wantNil(t, "make it again, in another order", err)
	got, err := d.Groups.Get(ctx, g.ID)
	wantNil(t, "get", err)
	if diff := cmp.Diff(g, again) + cmp.Diff(g, got); diff != "" {
		t.Fatalf("(-made +got):\n%s", diff)
	}
	texts := map[string]string{one.ID: "1111", two.ID: "2222"}
	for _, s := range g.Snapshots {
		if s.GroupID != g.ID || !s.Ready || !s.Created.Equal(g.Snapshots[0].Created) {
			t.Fatalf("got %+v", s)
		}
		alone, err := d.Snapshots.Get(ctx, s.ID)
		wantNil(t, "get a snapshot of a group", err)
		if diff := cmp.Diff(s, alone); diff != "" {
			t.Fatalf("alone (-want +got):\n%s", diff)
		}
		wantError(t, "delete a snapshot of a group", d.Snapshots.Delete(ctx, s.ID), provisioner.ErrInvalid)
		if d.Copies != nil {
			made, err := d.Copies.CreateFrom(ctx, blockSpec("of-"+s.VolumeID), provisioner.Source{SnapshotID: s.ID})
			wantNil(t, "restore", err)
			d.wantText(t, made.ID, texts[s.VolumeID])
		}
	}
	wantNil(t, "delete", d.Groups.Delete(ctx, g.ID))
	wantNil(t, "delete again", d.Groups.Delete(ctx, g.ID))
	if left := d.listSnapshots(t, provisioner.SnapshotFilter{}, 0); len(left) != 0 {
		t.Fatalf("snapshots of a deleted group: %v", left)
	}
}

func groupWrongly(t *testing.T, d DataUnderTest) {
	ctx := suiteContext(t)
	one, two := d.volume(t, "one", ""), d.volume(t, "two", "")
	for what, c := range map[string]struct {
		spec provisioner.GroupSpec
		want error
	}{
		"no name":           {provisioner.GroupSpec{VolumeIDs: []string{one.ID}}, provisioner.ErrInvalid},
		"no volume":         {provisioner.GroupSpec{Name: "g"}, provisioner.ErrInvalid},
		"an empty one":      {provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID, ""}}, provisioner.ErrInvalid},
		"one twice":         {provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID, one.ID}}, provisioner.ErrInvalid},
		"an unknown volume": {provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID, "no-such-volume"}}, provisioner.ErrNotFound},
	} {
		_, err := d.Groups.Create(ctx, c.spec)
		wantError(t, what, err, c.want)
	}
	if d.Snapshots != nil {
		if left := d.listSnapshots(t, provisioner.SnapshotFilter{}, 0); len(left) != 0 {
			t.Fatalf("snapshots of groups that could not be made: %v", left)
		}
	}
	_, err := d.Groups.Create(ctx, provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID}})
	wantNil(t, "make a group", err)
	_, err = d.Groups.Create(ctx, provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID, two.ID}})
	wantError(t, "the name for other volumes", err, provisioner.ErrExists)
	_, err = d.Groups.Get(ctx, "no-such-group")
	wantError(t, "get what never was", err, provisioner.ErrNotFound)
	wantNil(t, "delete what never was", d.Groups.Delete(ctx, "no-such-group"))
}

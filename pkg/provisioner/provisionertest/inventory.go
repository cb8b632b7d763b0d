package provisionertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestInventory checks the contracts of provisioner.Inventory, Room, Expansion
// and Health; those of them that a platform has not are left out.
func TestInventory(t *testing.T, open func(t *testing.T) DataUnderTest) {
	t.Helper()
	cases := map[string]struct {
		has func(provisioner.Platform) bool
		run func(*testing.T, DataUnderTest)
	}{
		"list":         {hasInventory, inventoryLists},
		"list, churn":  {hasInventory, inventoryChurns},
		"who has it":   {func(p provisioner.Platform) bool { return hasInventory(p) && p.Attachments != nil }, inventoryNodes},
		"room":         {func(p provisioner.Platform) bool { return p.Room != nil }, roomIsTold},
		"expand":       {func(p provisioner.Platform) bool { return p.Expansion != nil }, expands},
		"who is well":  {func(p provisioner.Platform) bool { return p.Health != nil }, healthIsTold},
		"what changes": {func(p provisioner.Platform) bool { return p.Change != nil }, changesRefused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			if !c.has(d.Platform) {
				t.Skip("the platform does not offer that")
			}
			c.run(t, d)
		})
	}
}

func hasInventory(p provisioner.Platform) bool { return p.Inventory != nil }

// listVolumes walks over pages of at most most, calling between before each.
func (d DataUnderTest) listVolumes(t *testing.T, most int, between func()) []string {
	t.Helper()
	var ids []string
	for page := (provisioner.Page{Max: most}); ; {
		between()
		got, next, err := d.Inventory.List(suiteContext(t), page)
		wantNil(t, "list", err)
		if most > 0 && len(got) > most {
			t.Fatalf("a page of %d, at most %d were asked for", len(got), most)
		}
		for _, e := range got {
			ids = append(ids, e.ID)
		}
		if next == "" {
			return ids
		}
		page.After = next
	}
}

func inventoryLists(t *testing.T, d DataUnderTest) {
	nothing := func() {}
	if got := d.listVolumes(t, 2, nothing); len(got) != 0 {
		t.Fatalf("volumes of an empty platform: %v", got)
	}
	var want []string
	for i := range 5 {
		want = append(want, d.volume(t, fmt.Sprintf("v%d", i), "").ID)
	}
	slices.Sort(want)
	for _, most := range []int{0, 1, 2, 5, 6} {
		if diff := cmp.Diff(want, d.listVolumes(t, most, nothing)); diff != "" {
			t.Fatalf("%d a page (-want +got):\n%s", most, diff)
		}
	}
	_, err := d.Inventory.Look(suiteContext(t), "no-such-volume")
	wantError(t, "look at what never was", err, provisioner.ErrNotFound)
}

// inventoryChurns: while pages are read, volumes come and go, among them the
// last one of each page; those that stay are met once each.
func inventoryChurns(t *testing.T, d DataUnderTest) {
	ctx := suiteContext(t)
	var stay []string
	for i := range 6 {
		stay = append(stay, d.volume(t, fmt.Sprintf("stay%d", i), "").ID)
	}
	goes := map[string]bool{}
	for i := range 6 {
		goes[d.volume(t, fmt.Sprintf("go%d", i), "").ID] = true
	}
	met, round := map[string]int{}, 0
	for page := (provisioner.Page{Max: 2}); ; round++ {
		got, next, err := d.Inventory.List(ctx, page)
		wantNil(t, "list", err)
		for _, e := range got {
			met[e.ID]++
			if goes[e.ID] {
				wantNil(t, "delete", d.Volumes.Delete(ctx, e.ID))
			}
		}
		if next == "" || round > 100 {
			break
		}
		d.volume(t, fmt.Sprintf("come%d", round), "")
		page.After = next
	}
	for _, id := range stay {
		if met[id] != 1 {
			t.Errorf("volume %s, there all the time, was met %d times", id, met[id])
		}
	}
	for id, n := range met {
		if n > 1 {
			t.Errorf("volume %s was met %d times", id, n)
		}
	}
}

func inventoryNodes(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "")
	nodes := func() []string {
		e, err := d.Inventory.Look(ctx, v.ID)
		wantNil(t, "look", err)
		all, _, err := d.Inventory.List(ctx, provisioner.Page{})
		wantNil(t, "list", err)
		if diff := cmp.Diff(e, all[0]); diff != "" {
			t.Fatalf("look and list differ (-look +list):\n%s", diff)
		}
		return e.Nodes
	}
	if got := nodes(); len(got) != 0 {
		t.Fatalf("nodes of a new volume: %v", got)
	}
	_, err := d.Attachments.Attach(ctx, provisioner.AttachSpec{VolumeID: v.ID, Node: NodeA, VolumeContext: v.Context})
	wantNil(t, "attach", err)
	if got := nodes(); !slices.Equal(got, []string{NodeA}) {
		t.Fatalf("nodes of an attached volume: %v", got)
	}
	wantNil(t, "detach", d.Attachments.Detach(ctx, v.ID, NodeA))
	if got := nodes(); len(got) != 0 {
		t.Fatalf("nodes of a detached volume: %v", got)
	}
}

func roomIsTold(t *testing.T, d DataUnderTest) {
	c, err := d.Room.Capacity(suiteContext(t), nil, nil)
	wantNil(t, "capacity", err)
	if c.Available < 0 || c.Largest < 0 || c.Smallest < 0 || (c.Largest > 0 && c.Smallest > c.Largest) {
		t.Fatalf("got %+v", c)
	}
	_, err = d.Room.Capacity(suiteContext(t), map[string]string{"no-such-parameter": "x"}, nil)
	if err != nil {
		wantError(t, "capacity for an unknown parameter", err, provisioner.ErrInvalid)
	}
}

func expands(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "text")
	larger := 2 * v.CapacityBytes
	for _, what := range []string{"expand", "expand again"} {
		got, err := d.Expansion.Expand(ctx, v.ID, larger, 0)
		wantNil(t, what, err)
		if got < larger {
			t.Fatalf("%s: %d bytes, want %d", what, got, larger)
		}
	}
	still, err := d.Expansion.Expand(ctx, v.ID, mib, 0)
	wantNil(t, "expand to less", err)
	have, err := d.Volumes.Get(ctx, v.ID)
	wantNil(t, "get", err)
	if still != have.CapacityBytes || still < larger {
		t.Fatalf("expand says %d bytes, get %d, want at least %d", still, have.CapacityBytes, larger)
	}
	d.wantText(t, v.ID, "text")
	_, err = d.Volumes.Create(ctx, blockSpec("one"))
	wantNil(t, "create again after it grew", err)
	_, err = d.Expansion.Expand(ctx, v.ID, mib, 2*mib)
	wantError(t, "a limit below its size", err, provisioner.ErrOutOfRange)
	_, err = d.Expansion.Expand(ctx, v.ID, -1, 0)
	wantError(t, "a negative size", err, provisioner.ErrInvalid, provisioner.ErrOutOfRange)
	_, err = d.Expansion.Expand(ctx, "no-such-volume", larger, 0)
	wantError(t, "an unknown volume", err, provisioner.ErrNotFound)
}

func healthIsTold(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "")
	h, err := d.Health.Get(ctx, v.ID)
	wantNil(t, "get the health", err)
	for _, p := range h.Problems {
		if p.Severity == provisioner.DataLoss || p.Reason == "" {
			t.Fatalf("a new volume: %+v", p)
		}
	}
	_, err = d.Health.Get(ctx, "no-such-volume")
	wantError(t, "an unknown volume", err, provisioner.ErrNotFound)
	unwell, _, err := d.Health.List(ctx, provisioner.Page{})
	wantNil(t, "list", err)
	if (len(unwell) > 0) != (len(h.Problems) > 0) {
		t.Fatalf("list tells of %+v, get of %+v", unwell, h)
	}
}

func changesRefused(t *testing.T, d DataUnderTest) {
	ctx, v := suiteContext(t), d.volume(t, "one", "")
	wantError(t, "an unknown parameter", d.Change.Modify(ctx, v.ID, map[string]string{"no-such-parameter": "x"}), provisioner.ErrInvalid)
	wantError(t, "an unknown volume", d.Change.Modify(ctx, "no-such-volume", nil), provisioner.ErrNotFound)
	wantNil(t, "change nothing", d.Change.Modify(ctx, v.ID, nil))
	spec := blockSpec("two")
	spec.Mutable = map[string]string{"no-such-parameter": "x"}
	_, err := d.Volumes.Create(ctx, spec)
	wantError(t, "create with an unknown parameter", err, provisioner.ErrInvalid)
}

package localvendor

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

func rack(value string) provisioner.Place { return provisioner.Place{"rack": value} }

// racks is a storage with storage at those racks.
func racks(t *testing.T, dir string, values ...string) *Storage {
	t.Helper()
	o := Options{TargetDir: dir}
	for _, v := range values {
		o.Places = append(o.Places, rack(v))
	}
	return openStorage(t, o)
}

func wanted(name string, from ...provisioner.Place) provisioner.VolumeSpec {
	out := spec(name)
	out.AccessibleFrom = from
	return out
}

func TestPlaceOfAVolume(t *testing.T) {
	one, two := rack("1"), rack("2")
	for name, c := range map[string]struct {
		places []string
		wanted []provisioner.Place
		want   []provisioner.Place
		err    error
	}{
		"no places":             {nil, nil, nil, nil},
		"no places, one wanted": {nil, []provisioner.Place{one}, nil, nil},
		"none is wanted":        {[]string{"1", "2"}, nil, []provisioner.Place{one}, nil},
		"the most preferred":    {[]string{"1", "2"}, []provisioner.Place{two, one}, []provisioner.Place{two}, nil},
		"the next, if there is no storage at it": {
			[]string{"1", "2"},
			[]provisioner.Place{rack("3"), two, one},
			[]provisioner.Place{two},
			nil,
		},
		"one that tells more":       {[]string{"1", "2"}, []provisioner.Place{{"rack": "2", "dpu": "d"}}, []provisioner.Place{two}, nil},
		"one that tells other keys": {[]string{"1", "2"}, []provisioner.Place{{"dpu": "d"}}, nil, provisioner.ErrExhausted},
		"elsewhere":                 {[]string{"1", "2"}, []provisioner.Place{rack("3")}, nil, provisioner.ErrExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := racks(t, dir, c.places...)
			v, err := s.Create(t.Context(), wanted("v", c.wanted...))
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.want, v.AccessibleTopology); diff != "" {
				t.Errorf("made (-want +got):\n%s", diff)
			}
			if left, err := os.ReadDir(dir); err != nil || c.err != nil && len(left) != 1 {
				t.Errorf("left of a volume that was refused: %v, %v", left, err)
			}
		})
	}
}

// TestPlaceIsRemembered: a volume stays where it was made, whatever places are
// named later; without one it is at the first.
func TestPlaceIsRemembered(t *testing.T) {
	dir := t.TempDir()
	s := openStorage(t, Options{TargetDir: dir})
	create(t, s, spec("old"))
	if _, err := s.Platform().Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "old", VolumeID: "old"}); err != nil {
		t.Fatal(err)
	}
	reopened := func(values ...string) provisioner.Platform {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = racks(t, dir, values...)
		return s.Platform()
	}
	p := reopened("1", "2")
	create(t, s, wanted("new", rack("2")))
	if _, err := p.Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "new", VolumeID: "new"}); err != nil {
		t.Fatal(err)
	}
	p = reopened("3", "1")
	for id, want := range map[string][]provisioner.Place{"old": {rack("3")}, "new": {rack("2")}} {
		look, err := p.Inventory.Look(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := p.Snapshots.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for what, got := range map[string][]provisioner.Place{"volume": look.AccessibleTopology, "snapshot": snapshot.AccessibleTopology} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", what, id, diff)
			}
		}
	}
}

// TestPlaceOfACopy: what begins as a copy is where its source is, or is not made.
func TestPlaceOfACopy(t *testing.T) {
	s := racks(t, t.TempDir(), "1", "2")
	p := s.Platform()
	create(t, s, wanted("v", rack("2")))
	if _, err := p.Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "s", VolumeID: "v"}); err != nil {
		t.Fatal(err)
	}
	for what, from := range map[string]provisioner.Source{"clone": {VolumeID: "v"}, "restore": {SnapshotID: "s"}} {
		for name, c := range map[string]struct {
			wanted []provisioner.Place
			err    error
		}{
			"anywhere":            {nil, nil},
			"where its source is": {[]provisioner.Place{rack("1"), rack("2")}, nil},
			"elsewhere":           {[]provisioner.Place{rack("1")}, provisioner.ErrExhausted},
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				got, err := p.Copies.CreateFrom(t.Context(), wanted(what+name, c.wanted...), from)
				if !errors.Is(err, c.err) {
					t.Fatalf("error %v, want %v", err, c.err)
				}
				if err != nil {
					return
				}
				if diff := cmp.Diff([]provisioner.Place{rack("2")}, got.AccessibleTopology); diff != "" {
					t.Errorf("made (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestPlaceOfARepeat: a request that is repeated gets its volume, one for another
// place is told of it.
func TestPlaceOfARepeat(t *testing.T) {
	s := racks(t, t.TempDir(), "1", "2")
	create(t, s, wanted("v", rack("2"), rack("1")))
	for name, c := range map[string]struct {
		wanted []provisioner.Place
		err    error
	}{
		"the same":              {[]provisioner.Place{rack("2"), rack("1")}, nil},
		"in another order":      {[]provisioner.Place{rack("1"), rack("2")}, nil},
		"from anywhere":         {nil, nil},
		"at another place":      {[]provisioner.Place{rack("1")}, provisioner.ErrExists},
		"where nothing can be":  {[]provisioner.Place{rack("3")}, provisioner.ErrExists},
		"at a place inside its": {[]provisioner.Place{{"rack": "2", "dpu": "d"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Create(t.Context(), wanted("v", c.wanted...)); !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
		})
	}
}

func TestRoomOfAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		places []string
		from   provisioner.Place
		room   bool
	}{
		"no places":                  {nil, rack("1"), true},
		"anywhere":                   {[]string{"1", "2"}, nil, true},
		"where there is storage":     {[]string{"1", "2"}, rack("2"), true},
		"inside of that":             {[]string{"1", "2"}, provisioner.Place{"rack": "2", "dpu": "d"}, true},
		"elsewhere":                  {[]string{"1", "2"}, rack("3"), false},
		"a place that tells nothing": {[]string{"1", "2"}, provisioner.Place{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := racks(t, t.TempDir(), c.places...).Platform().Room.Capacity(t.Context(), nil, c.from)
			if err != nil || (got.Available > 0) != c.room || (got.Largest > 0) != c.room {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestPlacesKeepTheContract(t *testing.T) {
	o := Options{Places: []provisioner.Place{rack("1"), rack("2")}}
	provisionertest.TestVolumes(t, func(t *testing.T) provisioner.Volumes { return openStorage(t, o) })
	open := func(t *testing.T) provisionertest.DataUnderTest { o.TargetDir = t.TempDir(); return underTest(t, o) }
	provisionertest.TestSnapshots(t, open)
	provisionertest.TestInventory(t, open)
}

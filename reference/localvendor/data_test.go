package localvendor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/blocktarget/admission"
)

// dataPath is a target's DataPath whose answers a test chooses.
type dataPath struct {
	paused   [][]string
	adjusted []string
	err      error
}

func (d *dataPath) Pause(ctx context.Context, volumes []string, during func(context.Context) error) error {
	d.paused = append(d.paused, volumes)
	if d.err != nil {
		return d.err
	}
	return during(ctx)
}

func (d *dataPath) Adjust(_ context.Context, volume string) error {
	d.adjusted = append(d.adjusted, volume)
	return d.err
}

func withData(d DataPath) Options {
	return Options{Target: &Target{Address: "target:10809", Revoker: revoker(willing), Data: d}}
}

func underTest(t *testing.T, o Options) provisionertest.DataUnderTest {
	s := openStorage(t, o)
	return provisionertest.DataUnderTest{
		Platform: s.Platform(),
		Write: func(t *testing.T, id, text string) {
			f, err := os.OpenFile(s.imagePath(id), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte(text), 0); errors.Join(err, f.Close()) != nil {
				t.Fatal(err)
			}
		},
		Read: func(t *testing.T, id string) string {
			raw, err := os.ReadFile(s.imagePath(id))
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		},
	}
}

func TestDataKeepsTheContract(t *testing.T) {
	for name, o := range map[string]Options{"files": {}, "target": withData(&dataPath{})} {
		t.Run(name, func(t *testing.T) {
			open := func(t *testing.T) provisionertest.DataUnderTest { o.TargetDir = t.TempDir(); return underTest(t, o) }
			provisionertest.TestSnapshots(t, open)
			provisionertest.TestInventory(t, open)
			provisionertest.TestBlocks(t, open)
		})
	}
}

func TestOnlyATargetCanLimit(t *testing.T) {
	if openStorage(t, Options{}).Platform().Change != nil {
		t.Error("a storage without a target says that it can limit")
	}
	s := openStorage(t, Options{})
	want := spec("one")
	want.Mutable = map[string]string{ParameterIOPS: "100"}
	if _, err := s.Create(t.Context(), want); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("limits without a target: %v", err)
	}
}

func TestLimits(t *testing.T) {
	d := &dataPath{}
	s := openStorage(t, withData(d))
	want := spec("one")
	want.Mutable = map[string]string{ParameterIOPS: "100"}
	v := create(t, s, want)
	e := attach(t, s, v.ID, "dpu-1")
	limitsNow := func() admission.Limits {
		g, err := Grants{Dir: s.dir}.Grant(e.Volume, e.Node)
		if err != nil {
			t.Fatal(err)
		}
		return g.Limits
	}
	if got := limitsNow(); got != (admission.Limits{IOPS: 100}) {
		t.Fatalf("got %+v", got)
	}
	for name, c := range map[string]struct {
		change map[string]string
		ok     bool
	}{
		"too few":   {map[string]string{ParameterIOPS: "1"}, false},
		"too slow":  {map[string]string{ParameterBytesPerSecond: "1000"}, false},
		"negative":  {map[string]string{ParameterBytesPerSecond: "-1"}, false},
		"a word":    {map[string]string{ParameterIOPS: "fast"}, false},
		"one wrong": {map[string]string{ParameterBytesPerSecond: "10000000", "color": "red"}, false},
		"unlimited": {map[string]string{ParameterIOPS: "0", ParameterBytesPerSecond: "16777216"}, true},
	} {
		before := limitsNow()
		err := s.Modify(t.Context(), v.ID, c.change)
		if c.ok != (err == nil) || (!c.ok && (!errors.Is(err, provisioner.ErrInvalid) || limitsNow() != before)) {
			t.Errorf("%s: %v, limits %+v", name, err, limitsNow())
		}
	}
	if err := s.Modify(t.Context(), v.ID, map[string]string{ParameterIOPS: "0", ParameterBytesPerSecond: "16777216"}); err != nil {
		t.Fatal(err)
	}
	if got := limitsNow(); got != (admission.Limits{BytesPerSecond: 16 << 20}) {
		t.Fatalf("got %+v", got)
	}
	d.err = blocktarget.ErrUnreachable
	if err := s.Modify(t.Context(), v.ID, nil); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("a target out of reach: %v", err)
	}
}

func TestHealthOfDamage(t *testing.T) {
	s := openStorage(t, Options{})
	p := s.Platform()
	damage := map[string]func(id string) error{
		reasonImageGone:     func(id string) error { return os.Remove(s.imagePath(id)) },
		reasonImageShort:    func(id string) error { return os.Truncate(s.imagePath(id), mib) },
		reasonRecordDamaged: func(id string) error { return os.WriteFile(s.recordPath(id), []byte("{"), 0o600) },
	}
	for reason, act := range damage {
		v := create(t, s, spec(reason))
		create(t, s, spec("well-"+reason))
		if err := act(v.ID); err != nil {
			t.Fatal(err)
		}
		h, err := p.Health.Get(t.Context(), v.ID)
		if err != nil || len(h.Problems) != 1 || h.Problems[0].Reason != reason || h.Problems[0].Severity != provisioner.DataLoss {
			t.Errorf("%s: %+v, %v", reason, h, err)
		}
	}
	got, next, err := p.Health.List(t.Context(), provisioner.Page{Max: 2})
	if err != nil || len(got) != 2 || next == "" {
		t.Fatalf("%v, %q, %v", got, next, err)
	}
	rest, next, err := p.Health.List(t.Context(), provisioner.Page{Max: 2, After: next})
	if err != nil || len(rest) != 1 || next != "" {
		t.Fatalf("%v, %q, %v", rest, next, err)
	}
}

func TestAttachLimit(t *testing.T) {
	s := openStorage(t, Options{MaxPerNode: 2})
	try := func(name, node string) error {
		_, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: create(t, s, spec(name)).ID, Node: node})
		return err
	}
	for _, name := range []string{"one", "two", "one"} { // the last is a repeat
		if err := try(name, "n1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := try("three", "n1"); !errors.Is(err, provisioner.ErrExhausted) {
		t.Fatalf("the third: %v", err)
	}
	if err := try("three", "n2"); err != nil {
		t.Fatalf("on another node: %v", err)
	}
	if err := s.Detach(t.Context(), "one", "n1"); err != nil {
		t.Fatal(err)
	}
	if err := try("four", "n1"); err != nil {
		t.Fatalf("after a detach: %v", err)
	}
}

// TestGroupHalfMade: what a crash leaves of a group does not exist, and goes
// with the next try or with its deletion.
func TestGroupHalfMade(t *testing.T) {
	s := openStorage(t, Options{})
	v := create(t, s, spec("one"))
	p := s.Platform()
	spec := provisioner.GroupSpec{Name: "g", VolumeIDs: []string{v.ID}}
	g, err := p.Groups.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.groupPath(g.ID)); err != nil { // as if it had not been written yet
		t.Fatal(err)
	}
	if _, err := p.Snapshots.Get(t.Context(), g.Snapshots[0].ID); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("a snapshot of a group that is none: %v", err)
	}
	if err := p.Groups.Delete(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(s.snapshotPath("*", ""))
	if err != nil || len(left) != 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
	if _, err := p.Groups.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// TestAListTakesInProportion: a list of ten times as many volumes is ten times the
// work, by what it allocates, which a busy machine does not change.
func TestAListTakesInProportion(t *testing.T) {
	s, made := openStorage(t, Options{}), 0
	work := func(volumes int) float64 {
		for ; made < volumes; made++ {
			if err := os.WriteFile(s.recordPath(fmt.Sprintf("v%04d", made)), []byte(`{"name":"v","capacityBytes":1048576,"attachments":{"n1":{}}}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return testing.AllocsPerRun(1, func() {
			all, _, err := s.Platform().Inventory.List(t.Context(), provisioner.Page{})
			if err != nil || len(all) != volumes || all[volumes-1].Nodes[0] != "n1" {
				t.Fatalf("%d, %v", len(all), err)
			}
		})
	}
	if few, many := work(100), work(1000); many > 15*few {
		t.Errorf("%.0f allocations for 100 volumes, %.0f for 1000", few, many)
	} else {
		t.Logf("%.0f allocations for 100 volumes, %.0f for 1000", few, many)
	}
}

// allocated is what a file takes on disk, in bytes.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

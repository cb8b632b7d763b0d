package main

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/devcluster"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		// wanted are the results to be measured; nil if the flags are wrong.
		wanted []string
	}{
		{"all", nil, allNames()},
		{"one", []string{"--only=pod.new_volume"}, []string{"pod.new_volume"}},
		{"a beginning", []string{"--only=attach.api"}, []string{"attach.api_writes.host", "attach.api_writes.dpu"}},
		{"several", []string{"--only=fence,detach"}, []string{"detach.single", "fence.rpc"}},
		{"volumes listed", []string{"--only=list.volumes1000"}, []string{"list.volumes1000"}},
		{"one process", []string{"--only=rss.snap-controller"}, []string{"rss."}},
		{"no such result", []string{"--only=nothing"}, nil},
		{"one of two is none", []string{"--only=pod,nothing"}, nil},
		{"negative runs", []string{"--runs=-1"}, nil},
		{"no volumes", []string{"--volumes=0"}, nil},
		{"a stray word", []string{"pod"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := parse(c.args)
			if (err == nil) != (c.wanted != nil) {
				t.Fatalf("parse %q: %v", c.args, err)
			}
			if err != nil {
				return
			}
			var got []string
			for _, name := range allNames() {
				if o.wants(name) || o.matches(suite{names: []string{name}}) {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(c.wanted, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	if got := (options{}).times(100); got != 100 {
		t.Errorf("%d runs by default, want 100", got)
	}
	if got := (options{runs: 3}).times(100); got != 3 {
		t.Errorf("%d runs, want the 3 of the flag", got)
	}
}

func TestUntilPhaseFillsThePeriod(t *testing.T) {
	const runs, parts = 40, 5
	var counts [parts]int
	elapsed := time.Duration(0)
	for i := range runs {
		wait := untilPhase(elapsed, i)
		if wait < 0 || wait >= kubeletPeriod {
			t.Fatalf("start %d waits %s, want less than a period", i, wait)
		}
		start := elapsed + wait
		counts[start%kubeletPeriod*parts/kubeletPeriod]++
		elapsed = start + 8300*time.Millisecond
	}
	for part, n := range counts {
		if n < runs/parts/2 {
			t.Errorf("part %d of the period has %d of %d starts: %v", part, n, runs, counts)
		}
	}
}

func TestEach(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]bool{}
	now, most := 0, 0
	bad := errors.New("bad")
	err := each(3*atOnce, func(i int) error {
		mu.Lock()
		now++
		most = max(most, now)
		seen[i] = true
		mu.Unlock()
		defer func() { mu.Lock(); now--; mu.Unlock() }()
		if i == 7 {
			return bad
		}
		return nil
	})
	if !errors.Is(err, bad) {
		t.Errorf("error %v, want that of one call", err)
	}
	if len(seen) != 3*atOnce || most > atOnce {
		t.Errorf("%d calls, %d at once; want %d, at most %d", len(seen), most, 3*atOnce, atOnce)
	}
}

func TestGroup(t *testing.T) {
	for process, want := range map[string]string{
		"snap-csi-plugin":         "snap-csi-plugin",
		"snap-csi-plugin-host-12": "snap-csi-plugin-host",
		"local-vendor-dpu-1":      "local-vendor-dpu",
		"snap-host-controller":    "snap-host-controller",
	} {
		if got := group(process); got != want {
			t.Errorf("%s is one of %s, want %s", process, got, want)
		}
	}
}

func TestAlignedIsFitForDirectIO(t *testing.T) {
	for range 100 {
		block := aligned(sector)
		if at := uintptr(unsafe.Pointer(&block[0])); len(block) != sector || at%sector != 0 {
			t.Fatalf("%d bytes at %#x, want %d at a multiple of it", len(block), at, sector)
		}
	}
}

// TestSettings: beds that differ in what matters are told apart.
func TestSettings(t *testing.T) {
	stock := settings(devcluster.Options{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileStock})
	for _, o := range []devcluster.Options{
		{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileFast},
		{Nodes: 4, VFs: 64, KubeletProfile: devcluster.ProfileStock},
		{Nodes: 3, VFs: 16, KubeletProfile: devcluster.ProfileStock},
		{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileStock, Topology: true},
		{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileStock, RecordBelow: true},
		{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileStock, Epochs: true},
		{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileStock, KeepFunctions: true},
		{Nodes: 3, VFs: 64, KubeletProfile: devcluster.ProfileStock, DPUPods: true},
	} {
		if cmp.Equal(stock, settings(o)) {
			t.Errorf("%+v has the settings of the stock bed", o)
		}
	}
	if stock["etcd"] != "with fsync" || stock["sidecars"] != "as shipped" {
		t.Errorf("the stock bed has %v", stock)
	}
}

// TestEveryResultDependsOnSomething: --stale has paths to look at.
func TestEveryResultDependsOnSomething(t *testing.T) {
	for _, name := range allNames() {
		for _, path := range measures(name) {
			if _, err := os.Stat(filepath.Join("..", "..", path)); err != nil {
				t.Errorf("%s depends on %s: %v", name, path, err)
			}
		}
	}
}

func TestFsyncMillis(t *testing.T) {
	if got, err := fsyncMillis(t.TempDir()); err != nil || got < 0 {
		t.Errorf("%v ms, %v", got, err)
	}
	if _, err := fsyncMillis("/nonexistent"); err == nil {
		t.Error("no directory is no error")
	}
}

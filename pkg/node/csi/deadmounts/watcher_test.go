package deadmounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/kubelet"
	"github.com/moor-storage/moor/pkg/node/csi"
)

// host is a host with a kubelet's directory with what it keeps of volumes, and a mount table.
type host struct {
	t     *testing.T
	dir   string
	table []csi.Mount
	// mu is for what follows: broken are the paths whose mounts are of no use; hung are
	// those about which nothing is answered, until the channel is closed.
	mu     sync.Mutex
	broken map[string]error
	hung   map[string]chan struct{}
	asked  int
	// reads are how often each path was asked about.
	reads map[string]int
	// ready are the volumes whose devices answer.
	ready map[string]bool
	// slowMounts and slowDevices are how long each answer about them takes.
	slowMounts, slowDevices time.Duration
	*Watcher
}

// set changes what is answered about the mounts.
func (k *host) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// answer answers about a mount.
func (k *host) answer(path string, _ csi.Mount) error {
	time.Sleep(k.slowMounts)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	k.reads[path]++
	if c := k.hung[path]; c != nil {
		k.mu.Unlock()
		<-c
		k.mu.Lock()
	}
	return k.broken[path]
}

func newHost(t *testing.T) *host {
	k := &host{t: t, dir: t.TempDir(), broken: map[string]error{}, hung: map[string]chan struct{}{}, reads: map[string]int{}, ready: map[string]bool{}}
	k.Watcher = New(Options{
		Driver: "ours",
		Mounts: func() ([]csi.Mount, error) { return k.table, nil },
		Broken: k.answer,
		Ready: func(_ context.Context, volume string) bool {
			time.Sleep(k.slowDevices)
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.ready[volume]
		},
	})
	return k
}

// show shows a volume to a pod, as a file system or as a block device, and returns the path.
func (k *host) show(pod, driver, volume string, block bool) string {
	k.t.Helper()
	at := kubelet.Target{Root: k.dir, Volume: "pv-" + volume, Pod: types.UID(pod), Block: block}
	path, data := at.Path(), at.Data()
	if err := os.MkdirAll(filepath.Dir(data), 0o750); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(data, fmt.Appendf(nil, `{"driverName":%q,"volumeHandle":%q,"specVolID":"pv"}`, driver, volume), 0o600); err != nil {
		k.t.Fatal(err)
	}
	k.mount(path)
	return path
}

func (k *host) mount(path string) {
	k.table = append(k.table, csi.Mount{MountPoint: mount.MountPoint{Path: path}})
}

// looks looks n times, and returns what is dead then: "volume: pods" each.
func (k *host) looks(n int) string {
	k.t.Helper()
	for range n {
		if err := k.look(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
	}
	return k.told()
}

// told is what is dead, "volume: pods" each.
func (k *host) told() string {
	var out []string
	for _, d := range k.Dead() {
		one := fmt.Sprintf("%s: %v", d.Volume, d.Pods)
		if d.DeviceReady {
			one += " ready"
		}
		out = append(out, one)
	}
	return strings.Join(out, "; ")
}

func (k *host) news() bool {
	select {
	case <-k.Changed():
		return true
	default:
		return false
	}
}

func TestDead(t *testing.T) {
	dead := errors.New("the device is gone")
	k := newHost(t)
	a, b, block := k.show("pod-a", "ours", "v1", false), k.show("pod-b", "ours", "v1", false), k.show("pod-b", "ours", "v2", true)
	k.broken[k.show("pod-a", "theirs", "v3", false)] = dead
	k.mount("/var/lib/kubelet/plugins/kubernetes.io/csi/ours/x/globalmount")
	for _, step := range []struct {
		name  string
		do    func()
		looks int
		want  string
		news  bool
	}{
		{"all are well", func() {}, 3, "", false},
		{"seen once", func() { k.broken[a], k.broken[b] = dead, dead }, 1, "", false},
		{"seen twice", func() {}, 1, "v1: [pod-a pod-b]", true},
		{"no news", func() {}, 5, "v1: [pod-a pod-b]", false},
		{"its device is back", func() { k.ready["v1"] = true }, 1, "v1: [pod-a pod-b] ready", true},
		{"its device is gone", func() { k.ready["v1"] = false }, 1, "v1: [pod-a pod-b]", true},
		{"a device too", func() { k.broken[block] = dead }, 2, "v1: [pod-a pod-b]; v2: [pod-b]", true},
		{"the pod has gone", func() { k.table = slices.DeleteFunc(k.table, func(m csi.Mount) bool { return m.Path == a }) }, 1, "v1: [pod-b]; v2: [pod-b]", true},
		{"another mount lies on it", func() { k.mount(b); delete(k.broken, b) }, 1, "v2: [pod-b]", true},
		{"well again for a moment", func() { delete(k.broken, block) }, 1, "", true},
		{"seen once again", func() { k.broken[block] = dead }, 1, "", false},
	} {
		step.do()
		if got := k.looks(step.looks); got != step.want || k.news() != step.news {
			t.Errorf("%s: dead are %q", step.name, got)
		}
	}
}

// TestHung: a mount about which nothing is answered is what it was, holds nothing up, and is
// asked about no second time.
func TestHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newHost(t)
		path, other := k.show("pod-a", "ours", "v1", false), k.show("pod-b", "ours", "v2", false)
		hang := make(chan struct{})
		k.set(func() { k.hung[path], k.broken[other] = hang, errors.New("gone") })
		began := time.Now()
		if got := k.looks(3); got != "v2: [pod-b]" || time.Since(began) > 3*patience {
			t.Errorf("after %s dead are %q", time.Since(began), got)
		}
		k.set(func() {
			if k.asked != 4 {
				t.Errorf("asked %d times", k.asked)
			}
			k.broken[path] = errors.New("input/output error")
			delete(k.hung, path)
		})
		close(hang)
		synctest.Wait()
		if got := k.looks(2); got != "v1: [pod-a]; v2: [pod-b]" {
			t.Errorf("dead are %q", got)
		}
		hang = make(chan struct{})
		defer close(hang)
		k.set(func() { k.hung[path] = hang })
		if got := k.looks(2); got != "v1: [pod-a]; v2: [pod-b]" {
			t.Errorf("dead are %q", got)
		}
	})
}

// TestSlow: where each answer takes longer than a look waits, as on a storage that is busy, dead mounts and
// devices that are back are told of all the same, from what is answered between two looks.
func TestSlow(t *testing.T) {
	const slow = 3 * patience
	for _, c := range []struct {
		mounts time.Duration
		looks  int
	}{{slow, 10}, {slow, 11}, {0, 10}, {0, 11}} { // an answer is on its way at the end of some of them
		synctest.Test(t, func(t *testing.T) {
			k := newHost(t)
			k.slowMounts, k.slowDevices = c.mounts, slow
			path := k.show("pod", "ours", "v1", false)
			k.set(func() { k.broken[path], k.ready["v1"] = errors.New("input/output error"), true })
			ctx, cancel := context.WithCancel(t.Context())
			defer time.Sleep(Period) // what was asked is answered
			defer cancel()
			go k.Run(ctx)
			time.Sleep(time.Duration(c.looks)*Period - 2*patience)
			if got := k.told(); got != "v1: [pod] ready" {
				t.Errorf("dead are %q", got)
			}
			k.set(func() { delete(k.broken, path) })
			time.Sleep(5 * Period)
			if got := k.told(); got != "" {
				t.Errorf("dead are still %q", got)
			}
			// What was answered about the device then says nothing now.
			k.set(func() { k.broken[path], k.ready["v1"] = errors.New("input/output error"), false })
			for range 10 {
				time.Sleep(Period)
				if got := k.told(); got != "" && got != "v1: [pod]" {
					t.Errorf("dead are %q", got)
				}
			}
		})
	}
}

// TestRun: it looks at once, and each period.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newHost(t)
		k.broken[k.show("pod", "ours", "v", false)] = errors.New("gone")
		began := time.Now()
		go k.Run(t.Context())
		<-k.Changed()
		if since := time.Since(began); since < Period || since > Period+patience {
			t.Errorf("told after %s", since)
		}
	})
}

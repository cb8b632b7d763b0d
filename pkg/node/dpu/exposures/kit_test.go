package exposures

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// errDown is what a service says that does not answer.
var errDown = errors.New("does not answer")

const (
	boot      = "boot-1"
	drainTime = 10 * time.Second
)

// fakeService is a SNAP service in memory. What it shows goes when it is withdrawn.
type fakeService struct {
	provisioner.DPU
	// down is the error of each call; nil: it answers.
	down   error
	counts []provisioner.FunctionCount
	// gone and left are what Tidy says.
	gone, left int
	// probe is what it says of the storage of each device that it shows.
	probe error
	// paths are what it tells of ways.
	paths []provisioner.Path

	mu        sync.Mutex
	shows     []provisioner.Exposure
	withdrawn []string
	discarded []string
}

func (s *fakeService) List(context.Context) ([]provisioner.Exposure, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shows), s.down
}

func (s *fakeService) Withdraw(_ context.Context, device string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withdrawn = append(s.withdrawn, device)
	if s.down == nil {
		s.shows = slices.DeleteFunc(s.shows, func(e provisioner.Exposure) bool { return e.Device == device })
	}
	return s.down
}

func (s *fakeService) Discard(_ context.Context, device, address string) error {
	s.discarded = append(s.discarded, device+" at "+address)
	return s.down
}

func (s *fakeService) Tidy(context.Context) (removed, left int, err error) {
	return s.gone, s.left, s.down
}

func (s *fakeService) Functions(context.Context) ([]provisioner.FunctionCount, error) {
	return s.counts, s.down
}

func (s *fakeService) Paths(context.Context, []string) ([]provisioner.Path, error) {
	return s.paths, s.down
}

func (s *fakeService) ProbePath(_ context.Context, device string) error {
	if s.down == nil && !slices.ContainsFunc(s.shows, func(e provisioner.Exposure) bool { return e.Device == device }) {
		return provisioner.ErrNotFound
	}
	return errors.Join(s.down, s.probe)
}

// cache is what the DPU's cache has of attachments, or why it cannot be read.
type cache struct {
	client.Client
	all []storagev1alpha1.VolumeAttachment
	err error
}

func (c *cache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for i := range c.all {
		l := list.(*storagev1alpha1.VolumeAttachmentList)
		l.Items = append(l.Items, *c.all[i].DeepCopy())
	}
	return c.err
}

// kit is the exposures of a DPU with services in memory.
type kit struct {
	*Exposures
	t        *testing.T
	root     string
	cache    *cache
	clock    *clocktesting.FakePassiveClock
	services map[string]*fakeService
	// told counts what was told of withdrawals.
	told atomic.Int32
	// loss is that of the ways of all devices.
	loss string
	// anew is how often they were told that nothing is on its way.
	anew int
}

// newKit has the services, each with a socket.
func newKit(t *testing.T, services map[string]*fakeService) *kit {
	t.Helper()
	k := &kit{t: t, root: t.TempDir(), cache: &cache{}, clock: clocktesting.NewFakePassiveClock(kubetest.Begin), services: services}
	k.Exposures = New(Options{
		Root: k.root, Boot: boot, Timeout: time.Minute, Drain: drainTime, Clock: k.clock,
		Attachments: &attachments.Store{DPU: kube.Cluster{Client: k.cache}, Node: "dpu-1"},
		Open: func(socket string) provisioner.DPU {
			if s := services[filepath.Base(filepath.Dir(socket))]; s != nil {
				return s
			}
			t.Errorf("a service is asked at %s that is none", socket)
			return &fakeService{}
		},
		Withdrawn: func() { k.told.Add(1) }, Ways: ways{k},
	})
	for name := range services {
		k.socket(name)
	}
	return k
}

// lose has service "a" lose the way of a device.
func (k *kit) lose(device string) {
	k.services["a"].paths = []provisioner.Path{{Device: device, State: provisioner.PathReconnecting}}
}

func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// socket has the service make its socket, as each start of it does.
func (k *kit) socket(name string) {
	k.t.Helper()
	path := filepath.Join(k.root, name, socketName)
	k.must(os.MkdirAll(filepath.Dir(path), 0o755))
	k.must(os.WriteFile(path+".new", nil, 0o600))
	k.must(os.Rename(path+".new", path))
}

// unlink takes the socket of a service away, which may go on.
func (k *kit) unlink(name string) {
	k.t.Helper()
	k.must(os.Remove(filepath.Join(k.root, name, socketName)))
}

// unreadable has the directory of the services be none.
func (k *kit) unreadable() {
	k.t.Helper()
	k.must(os.RemoveAll(k.root))
	k.must(os.WriteFile(k.root, nil, 0o600))
}

// restarted is a service that has ended, and was started again.
func (k *kit) restarted(name string) {
	k.t.Helper()
	before := k.Incarnation(name)
	k.socket(name)
	if k.Incarnation(name) == before {
		k.t.Fatal("the socket is the one of before")
	}
}

// attached is an attachment that has the device on record; many: of a volume of many writers.
func attached(device string, many bool) storagev1alpha1.VolumeAttachment {
	a := *kubetest.VolumeAttachment("of-"+device, "v-"+device, "dpu-1")
	a.Status.DPU.DeviceName = device
	if !many {
		a.Spec.Epoch = 1
	}
	return a
}

// onRecord is a device that was shown by the service as it runs now.
func (k *kit) onRecord(service, device string) *storagev1alpha1.VolumeAttachmentDPU {
	return &storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, DeviceName: device, Provider: service, Incarnation: k.Incarnation(service), PCIDeviceAddress: "3b:00.2",
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1},
	}
}

// visible are devices that the host sees.
func visible(devices ...string) []provisioner.Exposure {
	var out []provisioner.Exposure
	for _, d := range devices {
		out = append(out, provisioner.Exposure{Device: d, Visible: true})
	}
	return out
}

// ways are those of a kit.
type ways struct{ k *kit }

func (w ways) Loss(string) string { return w.k.loss }

func (w ways) Seen(p provisioner.Path) {
	if p.State == provisioner.PathReconnecting {
		w.k.loss = "loss"
	}
}

func (w ways) Anew(string) { w.k.anew++ }

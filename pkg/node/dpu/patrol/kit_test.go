package patrol

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

var errDown = errors.New("does not answer")

const period = 10 * time.Second

// service is the SNAP service "nvidia", in memory.
type service struct {
	provisioner.DPU
	shows []provisioner.Exposure
	// down is the error of each list, and withdraw of each withdrawal; nil: it answers.
	down, withdraw error
	// tidy is what Tidy does; nil: nothing is left.
	tidy func() (removed, left int, err error)
	// listed is called at each list; nil: nothing is.
	listed func()
}

func (s *service) List(context.Context) ([]provisioner.Exposure, error) {
	if s.listed != nil {
		s.listed()
	}
	return s.shows, s.down
}

func (s *service) Withdraw(_ context.Context, device string) error {
	if s.withdraw == nil {
		s.shows = slices.DeleteFunc(slices.Clone(s.shows), func(e provisioner.Exposure) bool { return e.Device == device })
	}
	return s.withdraw
}

func (s *service) Tidy(context.Context) (removed, left int, err error) {
	if s.tidy == nil {
		return 0, 0, nil
	}
	return s.tidy()
}

// plugin is the vendor's plugin "local", and all plugins there are.
type plugin struct {
	vendorplugin.Plugin
	made []provisioner.Device
	// down says why it may not be used, and keeps why it removes nothing.
	down, keeps error
	// lost are devices that it lists and does not have.
	lost []string
}

func (p *plugin) Names() ([]string, error) { return []string{"local"}, nil }

func (p *plugin) Get(string) (vendorplugin.Vetted, error) {
	return vendorplugin.Vetted{Plugin: p, Can: vendorplugin.Capabilities{Block: true, List: true}, Provider: "nvidia"}, p.down
}

func (p *plugin) Suspect(string) {}

func (p *plugin) States() []moorv1alpha1.PluginState { return nil }

func (p *plugin) ListDevices(context.Context) ([]provisioner.Device, error) { return p.made, nil }

func (p *plugin) GetDevice(_ context.Context, volumeID, device string) (provisioner.Device, error) {
	if !slices.ContainsFunc(p.made, func(d provisioner.Device) bool { return d.Name == device }) || slices.Contains(p.lost, device) {
		return provisioner.Device{}, provisioner.ErrNotFound
	}
	return provisioner.Device{VolumeID: volumeID, Name: device}, nil
}

func (p *plugin) DeleteDevice(_ context.Context, _, device string) error {
	if p.keeps == nil {
		p.made = slices.DeleteFunc(slices.Clone(p.made), func(d provisioner.Device) bool { return d.Name == device })
	}
	return p.keeps
}

// lister has attachments, as a cache or as the API server.
type lister struct {
	client.Client
	all   []storagev1alpha1.VolumeAttachment
	lost  error
	reads int
	// onRead is called before each read.
	onRead func()
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l.reads++; l.onRead != nil {
		l.onRead()
	}
	for i := range l.all {
		into := list.(*storagev1alpha1.VolumeAttachmentList)
		into.Items = append(into.Items, *l.all[i].DeepCopy())
	}
	return l.lost
}

// kit is the patrol of a DPU with one SNAP service and one plugin.
type kit struct {
	*Patrol
	t             *testing.T
	service       *service
	plugin        *plugin
	cache, server *lister
	clock         *clocktesting.FakeClock
	journal       *journal.Journal
	queue         *attachments.Queue
	exposures     *exposures.Exposures
	root          string
	// changes counts what was told to be different.
	changes int
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{
		t: t, service: &service{}, plugin: &plugin{}, cache: &lister{}, server: &lister{}, root: t.TempDir(),
		clock: clocktesting.NewFakeClock(kubetest.Begin), journal: journal.Open(filepath.Join(t.TempDir(), "journal")),
	}
	store := &attachments.Store{DPU: kube.Cluster{Client: k.cache, Live: k.server}, Node: "dpu-1"}
	k.queue = attachments.NewQueue(store)
	k.exposures = exposures.New(exposures.Options{Root: k.root, Attachments: store, Open: func(string) provisioner.DPU { return k.service }})
	k.Patrol = New(Options{
		Attachments: store, Queue: k.queue, Exposures: k.exposures, Devices: devices.New(k.plugin), Journal: k.journal, Clock: k.clock,
		Changed: func() { k.changes++ }, Period: period, Timeout: time.Minute, Jitter: func(d time.Duration) time.Duration { return d },
	})
	dir := filepath.Join(k.root, "nvidia")
	k.must(errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "snap.sock"), nil, 0o600)))
	return k
}

func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// stands has the volume shown and made for an attachment, which cache and server have.
func (k *kit) stands(volume string) *storagev1alpha1.VolumeAttachment {
	device := "dev-" + volume
	k.shows(device)
	k.makes(volume)
	a := kubetest.VolumeAttachment("of-"+volume, volume, "dpu-1")
	a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: true, DeviceName: device, BdevAttrs: &storagev1alpha1.BdevAttrs{}}
	k.cache.all, k.server.all = append(k.cache.all, *a), append(k.server.all, *a)
	return a
}

// shows has SNAP show a device.
func (k *kit) shows(device string) {
	k.service.shows = append(k.service.shows, provisioner.Exposure{Device: device, Visible: true})
}

// makes has the plugin make the device of a volume.
func (k *kit) makes(volume string) {
	k.plugin.made = append(k.plugin.made, provisioner.Device{VolumeID: attachments.VolumeID(volume), Name: "dev-" + volume})
}

// looked are the attachments that are to be looked at again.
func (k *kit) looked() (out []string) {
	for len(k.queue.Events()) > 0 {
		e := <-k.queue.Events()
		out = append(out, e.Object.GetName())
	}
	return out
}

// left are the devices that are shown, and then those that are made.
func (k *kit) left() (out []string) {
	for _, e := range k.service.shows {
		out = append(out, "shown "+e.Device)
	}
	for _, d := range k.plugin.made {
		out = append(out, "made "+d.Name)
	}
	return out
}

func (k *kit) want(left ...string) {
	k.t.Helper()
	if got := k.left(); !slices.Equal(got, left) {
		k.t.Errorf("left are %q, want %q", got, left)
	}
}

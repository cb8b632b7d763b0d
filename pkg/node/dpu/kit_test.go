package dpu

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/pkg/node/dpu/patrol"
	"github.com/moor-storage/moor/pkg/node/dpu/report"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

const ns = "dpf-operator-system"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// cluster is a fake DPU cluster whose API server can be made to fail.
type cluster struct {
	client.WithWatch
	t *testing.T
	// onWrite may fail a write: before it has its effect, or after.
	onWrite func(what string, effect func() error) error
	// onRead may fail a read; of reads at the same time one is asked about after
	// the other.
	onRead  func() error
	reading sync.Mutex
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{t: t}
	c.WithWatch = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&storagev1alpha1.VolumeAttachment{}, &moorv1alpha1.WriterClaim{}).
		WithIndex(&storagev1alpha1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*storagev1alpha1.VolumeAttachment).Spec.NodeName}
		}).Build()
	return c
}

// driver returns the client that a driver uses, with the faults.
func (c *cluster) driver() client.Client {
	write := func(what string, effect func() error) error {
		if c.onWrite != nil {
			return c.onWrite(what, effect)
		}
		return effect()
	}
	read := func() error {
		c.reading.Lock()
		defer c.reading.Unlock()
		if c.onRead != nil {
			return c.onRead()
		}
		return nil
	}
	return interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch", func() error { return w.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write("status", func() error { return w.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := read(); err != nil {
				return err
			}
			return w.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := read(); err != nil {
				return err
			}
			return w.List(ctx, l, opts...)
		},
	})
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// volume makes an available volume of the vendor "local".
func (c *cluster) volume(name string, mode corev1.PersistentVolumeAccessMode) *storagev1alpha1.Volume {
	c.t.Helper()
	v := &storagev1alpha1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, UID: types.UID("uid-of-" + name)},
		Spec: storagev1alpha1.VolumeSpec{
			Request:           storagev1alpha1.VolumeRequest{AccessModes: []corev1.PersistentVolumeAccessMode{mode}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock)},
			StorageParameters: map[string]string{"policy": "p", "num_queues": "2", "color": "red"},
			Volume: storagev1alpha1.VolumeSource{
				StorageVendorPluginName: "local", VolumeAttributes: map[string]string{"file": name},
				AccessModes: []corev1.PersistentVolumeAccessMode{mode},
			},
		},
	}
	c.must(c.Create(c.t.Context(), v))
	return v
}

// attachment makes a storage-attached attachment of the volume to the node.
func (c *cluster) attachment(volume, node string) *storagev1alpha1.VolumeAttachment {
	c.t.Helper()
	a := &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + volume, Namespace: ns, UID: types.UID("uid-" + node + "-" + volume)},
		Spec: storagev1alpha1.VolumeAttachmentSpec{
			NodeName: node, Parameters: map[string]string{"published": "yes"},
			Source:             storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Name: volume, Namespace: ns}},
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}
	c.must(c.Create(c.t.Context(), a))
	a.Status.StorageAttached = true
	c.must(c.Status().Update(c.t.Context(), a))
	return a
}

// get returns the attachment as it is; nil if it is gone.
func (c *cluster) get(name string) *storagev1alpha1.VolumeAttachment {
	c.t.Helper()
	a := &storagev1alpha1.VolumeAttachment{}
	err := c.Get(c.t.Context(), types.NamespacedName{Namespace: ns, Name: name}, a)
	if apierrors.IsNotFound(err) {
		return nil
	}
	c.must(err)
	return a
}

// grant gives the attachment the right to write under epoch, as
// snap-host-controller does.
func (c *cluster) grant(a *storagev1alpha1.VolumeAttachment, epoch int64) {
	c.t.Helper()
	c.claim(a.VolumeName(), &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: a.Spec.NodeName, Attachment: a.Name, AttachmentUID: a.UID, Epoch: epoch})
	now := c.get(a.Name)
	now.Spec.Epoch = epoch
	c.must(c.Update(c.t.Context(), now))
}

func (c *cluster) claim(volume string, status *moorv1alpha1.WriterClaimStatus) {
	c.t.Helper()
	w := &moorv1alpha1.WriterClaim{ObjectMeta: metav1.ObjectMeta{Name: volume, Namespace: ns}, Spec: moorv1alpha1.WriterClaimSpec{VolumeName: volume}}
	c.must(client.IgnoreAlreadyExists(c.Create(c.t.Context(), w)))
	c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(w), w))
	w.Status = status
	c.must(c.Status().Update(c.t.Context(), w))
}

// machine is one DPU: an emulated SNAP service, a vendor's plugin, a driver.
type machine struct {
	t       *testing.T
	c       *cluster
	node    string
	dir     string
	socket  string
	rpc     *snaprpc.Client
	emu     *snapemulatortest.Service
	vendor  *fakeVendor
	clock   *clocktesting.FakeClock
	watched func(provisioner.DPU) provisioner.DPU
	// boot tells one boot of the machine from the next.
	boot string
	// lease is what the driver gives; none if nil.
	lease Lease
	ways  fakeWays // of all devices
	parts
}

// parts are what a start of the driver makes.
type parts struct {
	*Reconciler
	exposures *exposures.Exposures
	queue     *attachments.Queue
	patrol    *patrol.Patrol
	reporter  *report.Reporter
	changed   *report.Signal
	withdrawn *report.Signal
}

func newMachine(t *testing.T, c *cluster, node string) *machine {
	t.Helper()
	return newMachineOf(t, c, node, snapemulatortest.Start)
}

// newMachineOf is newMachine with a SNAP service that start starts.
func newMachineOf(t *testing.T, c *cluster, node string, start func(testing.TB, snapemulator.Options) *snapemulatortest.Service) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dpu") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{
		t: t, c: c, node: node, dir: dir, socket: filepath.Join(dir, "s", "nvidia", "snap.sock"),
		boot:  "first",
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}
	for _, d := range []string{filepath.Dir(m.socket), filepath.Join(dir, "p", "local")} {
		c.must(os.MkdirAll(d, 0o755))
	}
	c.must(os.WriteFile(m.pluginSocket(), nil, 0o600))
	m.emu = start(t, snapemulator.Options{
		Name: m.node, Socket: m.socket, NewUUID: uuid.NewString,
		Hotplug: snapemulator.Hotplug{Slots: 31, StateFile: filepath.Join(m.dir, "functions.json")},
	})
	m.rpc = m.emu.Client
	m.vendor = &fakeVendor{rpc: m.rpc, can: vendorplugin.Capabilities{Block: true, Get: true, List: true}, fail: map[string]error{}}
	m.restartDriver()
	return m
}

func (m *machine) pluginSocket() string { return filepath.Join(m.dir, "p", "local", "dpu.sock") }

// restartDriver starts the driver with nothing in its memory.
func (m *machine) restartDriver() {
	const timeout = 20 * time.Second
	store := &attachments.Store{DPU: kube.Cluster{Client: m.c.driver(), Live: m.c.driver()}, Node: m.node, Namespace: ns}
	m.changed, m.withdrawn = report.NewSignal(), report.NewSignal()
	m.queue = attachments.NewQueue(store)
	m.exposures = exposures.New(exposures.Options{
		Root: filepath.Join(m.dir, "s"), Attachments: store, Timeout: timeout, Boot: m.boot,
		Drain: drainTime, Clock: m.clock, Withdrawn: m.withdrawn.Ask, Ways: &m.ways,
		Open: func(socket string) provisioner.DPU {
			d := provisioner.DPU(snap.New(snaprpc.New(socket, 2*time.Second), snap.Options{Reserved: store.Reserved, Recorded: store.Functions}))
			if m.watched != nil {
				d = m.watched(d)
			}
			return d
		},
	})
	made := devices.New(&onDemand{m: m})
	m.reporter = &report.Reporter{Exposures: m.exposures, Devices: made, Changed: m.changed}
	m.Reconciler = New(Options{
		Attachments: store, Queue: m.queue, Exposures: m.exposures, Devices: made, Lease: m.lease, Journal: journal.Open(m.journal()),
		Changed: m.changed.Ask, Timeout: timeout, Clock: m.clock,
	})
	m.patrol = patrol.New(m.patrolOptions())
}

func (m *machine) patrolOptions() patrol.Options {
	return patrol.Options{
		Attachments: m.o.Attachments, Queue: m.queue, Exposures: m.exposures, Devices: m.o.Devices, Journal: m.o.Journal,
		Changed: m.changed.Ask, Period: 10 * time.Second, Timeout: m.o.Timeout, Clock: m.clock, Withdrawn: m.withdrawn.C(),
		Jitter: func(d time.Duration) time.Duration { return d },
	}
}

// onDemand knows the plugin "local" by its socket, and checks it when asked.
type onDemand struct{ m *machine }

func (p *onDemand) Names() ([]string, error) {
	sockets, err := filepath.Glob(filepath.Join(p.m.dir, "p", "*", "dpu.sock"))
	for i, s := range sockets {
		sockets[i] = filepath.Base(filepath.Dir(s))
	}
	return sockets, err
}

func (p *onDemand) Get(name string) (vendorplugin.Vetted, error) {
	if _, err := os.Stat(filepath.Join(p.m.dir, "p", name, "dpu.sock")); err != nil {
		return vendorplugin.Vetted{}, fmt.Errorf("vendor plugin %s on DPU %s does not answer at %s: is its pod running? %w",
			name, p.m.node, p.m.pluginSocket(), provisioner.ErrUnavailable)
	}
	v, err := vendorplugin.Vet(context.Background(), p.m.vendor)
	if err != nil {
		err = fmt.Errorf("vendor plugin %s on DPU %s: %w", name, p.m.node, err)
	}
	return v, err
}

func (p *onDemand) Suspect(string) { p.m.vendor.suspected++ }

func (p *onDemand) States() []moorv1alpha1.PluginState {
	if _, err := p.Get("local"); err != nil {
		return []moorv1alpha1.PluginState{{Name: "local", Message: err.Error()}}
	}
	return []moorv1alpha1.PluginState{{Name: "local", Ready: true}}
}

// pass makes one pass over the attachment.
func (m *machine) pass(name string) error {
	_, err := m.Reconcile(m.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}})
	return err
}

// settle passes until two passes in a row change nothing and do not fail.
func (m *machine) settle(name string) *storagev1alpha1.VolumeAttachment {
	m.t.Helper()
	var err error
	version, calm := "", 0
	for range 20 {
		err = m.pass(name)
		now := m.c.get(name)
		if now == nil {
			return nil
		}
		if calm++; err != nil || now.ResourceVersion != version {
			calm = 0
		}
		if calm == 2 {
			return now
		}
		version = now.ResourceVersion
	}
	m.t.Fatalf("%s does not settle: %v", name, err)
	return nil
}

// shown returns what the host of this DPU sees, by device.
func (m *machine) shown() map[string]provisioner.Exposure {
	m.t.Helper()
	all, err := snap.New(m.rpc, snap.Options{}).List(context.Background())
	m.c.must(err)
	out := map[string]provisioner.Exposure{}
	for _, e := range all {
		out[e.Device] = e
	}
	return out
}

func (m *machine) bdevs() []string {
	m.t.Helper()
	all, err := m.rpc.BdevGetBdevs(context.Background(), "")
	m.c.must(err)
	var out []string
	for _, b := range all {
		out = append(out, b.Name)
	}
	return out
}

// wantEmpty fails if anything of any volume is left on the DPU.
func (m *machine) wantEmpty() {
	m.t.Helper()
	if s, b := m.shown(), m.bdevs(); len(s)+len(b) != 0 {
		m.t.Fatalf("left on %s: exposures %+v, devices %v", m.node, s, b)
	}
}

func (m *machine) inject(fault map[string]any) {
	m.t.Helper()
	m.c.must(m.rpc.Call(m.t.Context(), "moor_inject", fault, nil))
}

func (m *machine) clear() { m.t.Helper(); m.c.must(m.rpc.Call(m.t.Context(), "moor_clear", nil, nil)) }

// calls counts the calls of a method so far.
func (m *machine) calls(method string) int {
	m.t.Helper()
	var raw json.RawMessage
	m.c.must(m.rpc.Call(m.t.Context(), "moor_state", nil, &raw))
	var state struct{ Calls map[string]int }
	m.c.must(json.Unmarshal(raw, &state))
	return state.Calls[method]
}

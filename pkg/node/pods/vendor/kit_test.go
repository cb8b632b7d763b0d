package vendor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	dpu       = "dpu-1"
	namespace = "moor"
	boot      = "boot-2"
)

// machine is a DPU with an API server and a SNAP service in memory.
type machine struct {
	*Host
	t   *testing.T
	api client.WithWatch
	dir string
	// stages is what the controller makes of a new PodStaging.
	stages moorv1alpha1.PodStagingPhase

	mu     sync.Mutex
	serial int
	shown  map[string]show.Want
	fails  error
	bdevs  map[string]snaprpc.AIOSpec
	fsdevs map[string]string
	// refuses is what SNAP says when a device is to be made.
	refuses error
	// keeps is what SNAP says when a device is to be removed.
	keeps error
	// claimed is the device that the host sees.
	claimed string
	silent  bool
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	scheme, err := kube.NewScheme(corev1.AddToScheme, moorv1alpha1.AddPodsToScheme, storagev1alpha1.AddDPUToScheme)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{
		t: t, dir: t.TempDir(), stages: moorv1alpha1.PodStagingStaged,
		shown: map[string]show.Want{}, bdevs: map[string]snaprpc.AIOSpec{}, fsdevs: map[string]string{},
	}
	m.api = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&moorv1alpha1.PodStaging{}).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", m.next())))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if p, is := o.(*moorv1alpha1.PodStaging); is {
				m.undone(p)
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	m.restart()
	return m
}

// restart has another process go on, which remembers nothing.
func (m *machine) restart() {
	m.Host = New(Options{
		Node: dpu, Namespace: namespace, Volumes: filepath.Join(m.dir, "volumes"), Records: filepath.Join(m.dir, "records"),
		Stagings: ask.Stagings{Boot: boot, Client: m.api, Live: m.api, Awaiter: m}, Targets: m, SNAP: m,
	})
}

// volume makes a volume that is attached to this DPU, and returns how to open it.
func (m *machine) volume(name string, mode provisioner.VolumeMode) provisioner.OpenSpec {
	m.t.Helper()
	m.add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{
		VolumeMode:             ptr.To(corev1.PersistentVolumeMode(mode)),
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "crypt", VolumeHandle: "h-" + name}},
	}}, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-pvc"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	})
	return m.attach(name, mode)
}

// attach attaches a volume to this DPU anew.
func (m *machine) attach(name string, mode provisioner.VolumeMode) provisioner.OpenSpec {
	m.t.Helper()
	attachment := fmt.Sprintf("%s-on-%s-%d", name, dpu, m.next())
	m.add(&storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: attachment}})
	return provisioner.OpenSpec{
		VolumeID: name + "-pvc", Mode: mode, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
		PublishContext: map[string]string{storagev1alpha1.PublishContextAttachment: attachment},
	}
}

func (m *machine) next() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	return m.serial
}

func (m *machine) add(all ...client.Object) {
	m.t.Helper()
	for _, o := range all {
		if err := m.api.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

// stagings are those that there are.
func (m *machine) stagings() []moorv1alpha1.PodStaging {
	m.t.Helper()
	var list moorv1alpha1.PodStagingList
	if err := m.api.List(context.Background(), &list); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

// Await is a kube.Awaiter that lets the controller do its part, and whose time is over when that has
// nothing to do.
func (m *machine) Await(ctx context.Context, key types.NamespacedName, done func(*moorv1alpha1.PodStaging, bool) (bool, error)) (*moorv1alpha1.PodStaging, error) {
	for {
		did := m.control(ctx, key)
		p := &moorv1alpha1.PodStaging{}
		found, err := kube.Find(ctx, m.api, key, p)
		if err != nil {
			return p, err
		}
		if ok, err := done(p, found); ok || err != nil {
			return p, err
		}
		if !did {
			return p, context.DeadlineExceeded
		}
	}
}

// control stages what is new, as pod-provisioner does.
func (m *machine) control(ctx context.Context, key types.NamespacedName) bool {
	p := &moorv1alpha1.PodStaging{}
	found, err := kube.Find(ctx, m.api, key, p)
	if err != nil || !found || p.Status.Phase != "" || m.stages == "" {
		return false
	}
	m.staged(p, m.stages)
	return true
}

// staged has a new pod come to something.
func (m *machine) staged(p *moorv1alpha1.PodStaging, phase moorv1alpha1.PodStagingPhase) {
	m.t.Helper()
	p.Status.Phase, p.Status.Directory, p.Status.Message = phase, p.Name, "words of "+string(phase)
	p.Status.Report = &moorv1alpha1.StagingReport{BootID: boot, PodReport: moorv1alpha1.PodReport{PodUID: types.UID(fmt.Sprintf("pod-%d", m.next()))}}
	if err := m.api.Status().Update(context.Background(), p); err != nil {
		m.t.Error(err)
	}
}

// Show and Hide are the targets.

func (m *machine) Show(w show.Want) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		m.shown[w.Target] = w
	}
	return m.fails
}

func (m *machine) Hide(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over(target) {
		m.t.Errorf("%s is hidden under a device", target)
	}
	delete(m.shown, target)
	return nil
}

// undone fails the test if a volume is unstaged while it is shown.
func (m *machine) undone(p *moorv1alpha1.PodStaging) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for target, w := range m.shown {
		if w.Directory == p.Name {
			m.t.Errorf("%s is unstaged while it is shown at %s", p.Name, target)
		}
	}
}

// over reports whether SNAP has a device over a path.
func (m *machine) over(path string) bool {
	for _, d := range m.bdevs {
		if d.Filename == path {
			return true
		}
	}
	for _, root := range m.fsdevs {
		if root == path {
			return true
		}
	}
	return false
}

// What follows is the SNAP service.

func (m *machine) answers() error {
	if m.silent {
		return snaprpc.ErrUnavailable
	}
	return nil
}

func (m *machine) claims(device string) error {
	if m.claimed == device {
		return &snaprpc.Error{Code: -int(syscall.EBUSY), Message: "Device or resource busy"}
	}
	return nil
}

func (m *machine) makes(path string) error {
	if err := m.answers(); err != nil {
		return err
	}
	if _, there := m.shown[path]; !there && m.refuses == nil {
		return &snaprpc.Error{Code: -2, Message: "No such file or directory"}
	}
	return m.refuses
}

func (m *machine) BdevGetBdevs(_ context.Context, name string) ([]snaprpc.Bdev, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.bdevs[name]; !there && !m.silent {
		return nil, &snaprpc.Error{Code: snaprpc.CodeNoDevice, Message: "No such device"}
	}
	return []snaprpc.Bdev{{Name: name}}, m.answers()
}

func (m *machine) BdevAioCreate(_ context.Context, spec snaprpc.AIOSpec) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.makes(spec.Filename); err != nil {
		return "", err
	}
	m.bdevs[spec.Name] = spec
	return spec.Name, nil
}

func (m *machine) BdevAioDelete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(m.answers(), m.keeps, m.claims(name)); err != nil {
		return err
	}
	delete(m.bdevs, name)
	return nil
}

func (m *machine) FsdevGetFsdevs(context.Context) ([]snaprpc.FSDev, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []snaprpc.FSDev
	for name := range m.fsdevs {
		out = append(out, snaprpc.FSDev{Name: name})
	}
	return out, m.answers()
}

func (m *machine) FsdevAioCreate(_ context.Context, name, root string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.makes(root); err != nil {
		return err
	}
	m.fsdevs[name] = root
	return nil
}

func (m *machine) FsdevAioDelete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(m.answers(), m.keeps, m.claims(name)); err != nil {
		return err
	}
	delete(m.fsdevs, name)
	return nil
}

// bare fails unless nothing of a volume is left.
func (m *machine) bare() {
	m.t.Helper()
	if all, err := m.records.All(); err != nil || len(all)+len(m.stagings())+len(m.shown)+len(m.bdevs)+len(m.fsdevs) > 0 {
		m.t.Errorf("left are records %v (%v), stagings %v, shown %v, bdevs %v, fsdevs %v", all, err, m.stagings(), m.shown, m.bdevs, m.fsdevs)
	}
}

// wants fails unless an error is of a kind and has words.
func (m *machine) wants(err, kind error, words string) {
	m.t.Helper()
	if !errors.Is(err, kind) || err == nil || !strings.Contains(err.Error(), words) {
		m.t.Errorf("got %v, want %v with %q", err, kind, words)
	}
}

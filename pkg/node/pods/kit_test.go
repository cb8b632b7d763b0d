package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/node/pods/endpoint"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	helperpods "github.com/moor-storage/moor/pkg/provisioner/pods"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node    = "n1"
	boot    = "boot-2"
	staging = "pav-volume-stage-1"
	volume  = "pvc-1"
)

// bed is an agent over an API server in memory, a root, and a kubelet's directory.
type bed struct {
	*Agent
	t      *testing.T
	direct client.WithWatch
	clock  *clocktesting.FakeClock
	events *record.FakeRecorder
	writes int
	// hidden are the kinds that the cache does not show.
	hidden map[string]bool

	mu      sync.Mutex
	renewed []show.Want
	renew   error
	shown   map[string]bool
	runs    map[string]int
	forgot  []string
	refuses error
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{
		t: t, clock: clocktesting.NewFakeClock(time.Now()), events: record.NewFakeRecorder(100),
		hidden: map[string]bool{}, shown: map[string]bool{}, runs: map[string]int{},
	}
	scheme, err := kube.NewScheme(moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme, corev1.AddToScheme)
	b.must(err)
	build := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&moorv1alpha1.PodStaging{}, &moorv1alpha1.PodVolume{}, &corev1.Pod{})
	for _, i := range []kube.Index{endpoint.IndexByNode(), podvolume.IndexPodsByNode()} {
		build.WithIndex(i.Object, i.Field, i.Extract)
	}
	b.direct = build.Build()
	b.Agent, err = New(Options{Node: node, Boot: boot, Root: filepath.Join(t.TempDir(), "pav"), Kubelet: short(t), Registrar: b, Metrics: prometheus.NewPedanticRegistry()})
	b.must(err)
	b.drivers.within(context.Background()) // Start ends them, as with the agent
	t.Cleanup(b.drivers.stop)
	b.cluster = kube.Cluster{Client: b.cached(), Live: b.direct}
	b.Agent.clock, b.Agent.events, b.targets = b.clock, b.events, b
	b.ready, err = newWatcher(b.root)
	b.must(err)
	t.Cleanup(func() { b.ready.files.Close() })
	b.must(os.MkdirAll(b.o.Root, 0o755))
	b.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"disk": "fast"}}})
	return b
}

// short is a temporary directory with a name that leaves room for those of sockets.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// cached is the API server as the cache of the agent shows it.
func (b *bed) cached() client.Client {
	return interceptor.NewClient(b.direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if b.hidden[fmt.Sprintf("%T", o)] {
				return apierrors.NewNotFound(corev1.Resource("x"), k.Name)
			}
			return c.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if b.hidden[fmt.Sprintf("%T", l)] {
				return nil
			}
			return c.List(ctx, l, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			b.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// hide has the cache show no pods and no PodStagings.
func (b *bed) hide() {
	for _, o := range []any{&corev1.Pod{}, &corev1.PodList{}, &moorv1alpha1.PodStaging{}, &moorv1alpha1.PodStagingList{}} {
		b.hidden[fmt.Sprintf("%T", o)] = true
	}
}

// Show, Hide, Usage, Renew and Shown are the targets; Run and Forget the kubelet.

func (b *bed) Renew(w show.Want) (bool, error) {
	b.renewed = append(b.renewed, w)
	return true, b.renew
}

func (b *bed) Shown(target string) (bool, error) { return b.shown[target], nil }

func (b *bed) Run(ctx context.Context, driver, socket string) error {
	c, err := net.Dial("unix", socket) // the kubelet calls at once
	if err != nil {
		return err
	}
	c.Close()
	b.mu.Lock()
	b.runs[driver]++
	err = b.refuses
	b.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (b *bed) Forget(driver string) error {
	b.forgot = append(b.forgot, driver)
	return nil
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// add makes objects with their status.
func (b *bed) add(all ...client.Object) {
	b.t.Helper()
	for _, o := range all {
		want := o.DeepCopyObject().(client.Object)
		b.must(b.direct.Create(b.t.Context(), o))
		want.SetResourceVersion(o.GetResourceVersion())
		if err := b.direct.Status().Update(b.t.Context(), want); err != nil && !apierrors.IsNotFound(err) {
			b.must(err)
		}
	}
}

// remove deletes an object, with its finalizers.
func (b *bed) remove(o client.Object) {
	b.t.Helper()
	b.must(b.direct.Get(b.t.Context(), client.ObjectKeyFromObject(o), o))
	o.SetFinalizers(nil)
	b.must(b.direct.Update(b.t.Context(), o))
	b.must(b.direct.Delete(b.t.Context(), o))
}

// write makes a file in a directory of the root.
func (b *bed) write(directory, name, text string) {
	b.t.Helper()
	b.must(os.MkdirAll(b.root.Path(directory), 0o755))
	b.must(os.WriteFile(filepath.Join(b.root.Path(directory), name), []byte(text), 0o600))
}

func (b *bed) there(directory string) bool {
	b.t.Helper()
	_, err := os.Lstat(b.root.Path(directory))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return err == nil
}

// pod is a helper pod on this node, which works for an object of the kind, of a UID, with a directory.
func (b *bed) pod(name string, of helper, directory string, phase corev1.PodPhase) *corev1.Pod {
	label := moorv1alpha1.LabelPodVolume
	if of.kind == kindStaging {
		label = moorv1alpha1.LabelPodStaging
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{label: string(of.uid)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: moorv1alpha1.GroupVersion.String(), Kind: of.kind, Name: of.name, UID: of.uid}},
		},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: helperpods.VolumeName, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: b.root.Path(directory)},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

var (
	ofVolume  = helper{kindVolume, volume, "uid-v"}
	ofStaging = helper{kindStaging, staging, "uid-s"}
)

// podVolume is one that waits for a pod.
func podVolume(pod string) *moorv1alpha1.PodVolume {
	return &moorv1alpha1.PodVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume, UID: ofVolume.uid},
		Status:     moorv1alpha1.PodVolumeStatus{Phase: moorv1alpha1.PodVolumeCreating, Pod: &moorv1alpha1.HelperPod{Namespace: "default", Name: pod, NodeName: node}},
	}
}

// podStaging is one of this node in a phase, with a pod.
func podStaging(phase moorv1alpha1.PodStagingPhase, pod string) *moorv1alpha1.PodStaging {
	out := &moorv1alpha1.PodStaging{
		ObjectMeta: metav1.ObjectMeta{Name: staging, UID: ofStaging.uid, Finalizers: []string{moorv1alpha1.FinalizerPodStaging}},
		Spec:       moorv1alpha1.PodStagingSpec{ProvisionerName: "crypt", VolumeName: "pv-1", NodeName: node, User: moorv1alpha1.StagingUser{Namespace: "ns", Name: "user", UID: "uid-u"}},
		Status:     moorv1alpha1.PodStagingStatus{Phase: phase, Directory: staging},
	}
	if pod != "" {
		out.Status.Pod = &moorv1alpha1.HelperPod{Namespace: "default", Name: pod, UID: types.UID("uid-of-" + pod)}
	}
	return out
}

func (b *bed) reconcilePod(name string) reconcile.Result {
	b.t.Helper()
	got, err := reports{b.Agent}.Reconcile(b.t.Context(), kube.RequestFor("default", name))
	b.must(err)
	return got
}

func (b *bed) reconcileStaging() reconcile.Result {
	b.t.Helper()
	got, err := stagings{b.Agent}.Reconcile(b.t.Context(), kube.RequestFor("", staging))
	b.must(err)
	return got
}

func (b *bed) stagingReport() *moorv1alpha1.StagingReport {
	b.t.Helper()
	var s moorv1alpha1.PodStaging
	b.must(b.direct.Get(b.t.Context(), client.ObjectKey{Name: staging}, &s))
	return s.Status.Report
}

func (b *bed) volumeReport() *moorv1alpha1.PodReport {
	b.t.Helper()
	var v moorv1alpha1.PodVolume
	b.must(b.direct.Get(b.t.Context(), client.ObjectKey{Name: volume}, &v))
	return v.Status.Report
}

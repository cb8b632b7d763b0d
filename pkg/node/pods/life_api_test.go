//go:build api

package pods

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/pods/mountinfo"
	"github.com/moor-storage/moor/pkg/node/registrar"
	helperpods "github.com/moor-storage/moor/pkg/provisioner/pods"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/kit/needs"
)

// life is a node with the agent on it, whose API server is a real one. The test plays the controller and
// the kubelet.
type life struct {
	client.Client
	t   *testing.T
	api *apiserver.One
	dir string
}

func newLife(t *testing.T) *life {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Missing(t, "it mounts, for which root is needed")
	}
	l := &life{t: t, api: apiserver.StartOne(t, apiserver.Host), dir: short(t)}
	root, err := devcluster.FindRoot()
	l.must(err)
	l.must(kit.Apply(t.Context(), l.api, filepath.Join(root, "crds", "pav")))
	for _, manifest := range []string{"00-namespace", "pod-provisioner-rbac", "pod-provisioner-node-policy"} {
		l.must(kit.Apply(t.Context(), l.api, filepath.Join(root, "deploy", "pav", manifest+".yaml")))
	}
	scheme, err := kube.NewScheme(corev1.AddToScheme, moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme)
	l.must(err)
	l.Client, err = client.New(l.api.Config, client.Options{Scheme: scheme})
	l.must(err)
	// The targets and the root are on a mount of their own that is shared, as those of a node are.
	l.must(unix.Mount("tmpfs", l.dir, "tmpfs", 0, "size=16m"))
	l.must(unix.Mount("", l.dir, "", unix.MS_SHARED, ""))
	t.Cleanup(func() {
		for _, m := range l.mounts(l.dir) {
			_ = unix.Unmount(m.Path, unix.MNT_DETACH)
		}
	})
	l.create(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
	)
	return l
}

func (l *life) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) create(all ...client.Object) {
	l.t.Helper()
	for _, o := range all {
		l.must(l.Create(l.t.Context(), o))
	}
}

func (l *life) until(what string, ok func() bool) { l.t.Helper(); wait(l.t, what, ok) }

func (l *life) mounts(at string) []mountinfo.Mount {
	l.t.Helper()
	all, err := mountinfo.List()
	l.must(err)
	return mountinfo.Beneath(all, at)
}

// agent starts the agent, with the rights of the manifests alone, and returns what stops it.
func (l *life) agent() (stop func()) {
	l.t.Helper()
	config := rest.CopyConfig(l.api.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:moor-pods:pod-provisioner-node", Groups: []string{"system:serviceaccounts", "system:authenticated"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}, // as a token of a pod has it
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: l.Scheme(), Cache: cache.Options{ByObject: ByObject(node)}, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true)}, // the second agent is in the same process
	})
	l.must(err)
	a, err := New(Options{Node: node, Boot: boot, Root: l.path("pav"), Kubelet: l.path("kubelet"), Registrar: registrar.Kubelet{Directory: l.path("registry"), Logger: logr.Discard()}, Metrics: prometheus.NewPedanticRegistry()})
	l.must(err)
	ctx, cancel := context.WithCancel(l.t.Context())
	l.must(a.SetupWithManager(ctx, mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() { l.t.Helper(); cancel(); l.must(<-done) }
}

func (l *life) path(name ...string) string { return filepath.Join(append([]string{l.dir}, name...)...) }

func (l *life) target() string {
	return l.path("kubelet", "pods", "uid-u", "volumes", "kubernetes.io~csi", "pv-1", "mount")
}

// call calls the endpoint of a provisioner as the kubelet does.
func (l *life) call(do func(ctx context.Context, c csispec.NodeClient) error) error {
	l.t.Helper()
	conn, err := grpc.NewClient("unix://"+l.path("kubelet", "plugins", "crypt", "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	l.must(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	return do(ctx, csispec.NewNodeClient(conn))
}

func (l *life) publish() error {
	l.t.Helper()
	return l.call(func(ctx context.Context, c csispec.NodeClient) error {
		_, err := c.NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{
			VolumeId: "h", TargetPath: l.target(), Readonly: true,
			VolumeCapability: &csispec.VolumeCapability{
				AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{}},
				AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			},
			VolumeContext: map[string]string{"csi.storage.k8s.io/pod.name": "user", "csi.storage.k8s.io/pod.namespace": "default", "csi.storage.k8s.io/pod.uid": "uid-u"},
		}, grpc.WaitForReady(true))
		return err
	})
}

// registered looks for the driver as the kubelet does.
func (l *life) registered() {
	l.t.Helper()
	conn, err := grpc.NewClient("unix://"+registrar.SocketPath(l.path("registry"), "crypt"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	l.must(err)
	defer conn.Close()
	info, err := registerapi.NewRegistrationClient(conn).GetInfo(l.t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	l.must(err)
	if info.Name != "crypt" || info.Endpoint != l.path("kubelet", "plugins", "crypt", "csi.sock") {
		l.t.Errorf("the kubelet is told of %v", info)
	}
}

// staging is the PodStaging that the agent has made, when it is as it is wanted.
func (l *life) staging(what string, ok func(s *moorv1alpha1.PodStaging) bool) *moorv1alpha1.PodStaging {
	l.t.Helper()
	var list moorv1alpha1.PodStagingList
	l.until(what, func() bool {
		l.must(l.List(l.t.Context(), &list))
		return len(list.Items) == 1 && (ok == nil || ok(&list.Items[0]))
	})
	return &list.Items[0]
}

// phase is what the controller writes.
func (l *life) phase(phase moorv1alpha1.PodStagingPhase, pod *corev1.Pod) {
	l.t.Helper()
	s := l.staging("a PodStaging", nil)
	_, err := kube.PatchStatus(l.t.Context(), l.Client, s, func(s *moorv1alpha1.PodStaging) {
		s.Status.Phase, s.Status.Directory, s.Status.Pod = phase, s.Name, nil
		if pod != nil {
			s.Status.Pod = &moorv1alpha1.HelperPod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, NodeName: node, Since: metav1.Now()}
		}
	})
	l.must(err)
}

// helper has a staging pod run, as the controller and the kubelet do.
func (l *life) helper() *corev1.Pod {
	l.t.Helper()
	s := l.staging("a PodStaging", nil)
	_, err := kube.AddFinalizer(l.t.Context(), l.Client, s, moorv1alpha1.FinalizerPodStaging)
	l.must(err)
	pod, err := helperpods.Pod(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, helperpods.Helper{
		Phase: helperpods.Staging, Name: helperpods.StagingPodName(helperpods.Staging, "1"), Root: l.path("pav"), Directory: s.Name, NodeName: node,
		Labels: map[string]string{moorv1alpha1.LabelPodStaging: string(s.UID)},
		Owner:  metav1.OwnerReference{APIVersion: moorv1alpha1.GroupVersion.String(), Kind: kindStaging, Name: s.Name, UID: s.UID},
	})
	l.must(err)
	l.create(pod)
	l.phase(moorv1alpha1.PodStagingStaging, pod)
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, ptr.To(metav1.NewTime(time.Now().Truncate(time.Second)))
	l.must(l.Status().Update(l.t.Context(), pod))
	return pod
}

// stage is what the staging pod does: a mount with one file, and then /pav/ready.
func (l *life) stage(file string) {
	l.t.Helper()
	volume := l.path("pav", l.staging("a PodStaging", nil).Name, "volume")
	l.must(os.MkdirAll(volume, 0o755))
	l.must(unix.Mount("tmpfs", volume, "tmpfs", 0, "size=1m"))
	l.must(os.WriteFile(filepath.Join(volume, file), nil, 0o600))
	l.must(os.WriteFile(filepath.Join(filepath.Dir(volume), "ready"), nil, 0o600))
}

// kill deletes a pod as the kubelet does when its containers have ended.
func (l *life) kill(pod *corev1.Pod) {
	l.t.Helper()
	l.must(l.Delete(l.t.Context(), pod, client.GracePeriodSeconds(0)))
}

func reported(pod types.UID) func(s *moorv1alpha1.PodStaging) bool {
	return func(s *moorv1alpha1.PodStaging) bool {
		r := s.Status.Report
		return r != nil && r.PodUID == pod && r.Ready && r.VolumeMode == corev1.PersistentVolumeFilesystem && r.Problem == "" && !r.Cleared
	}
}

func cleared(s *moorv1alpha1.PodStaging) bool {
	return s.Status.Report != nil && s.Status.Report.Cleared
}

// TestLife goes through the life of a volume on a node with a real API server and the rights of the manifests: it
// is staged, shown, its pod dies, it is staged and shown again by another agent, and goes.
func TestLife(t *testing.T) {
	l := newLife(t)
	l.create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "crypt", VolumeHandle: "h"}},
	}})
	stop := l.agent()
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "crypt"}, Spec: pavv1alpha1.PavProvisionerSpec{
		ProvisioningModes: []pavv1alpha1.ProvisioningMode{pavv1alpha1.Static},
		VolumeStaging:     pavv1alpha1.VolumeStaging{PodTemplate: &apiextensionsv1.JSON{Raw: []byte(`{"spec":{}}`)}},
	}}
	l.create(p)
	l.registered()
	published := make(chan error, 1)
	go func() { published <- l.publish() }()
	first := l.helper()
	l.stage("first")
	l.staging("the report of the staging pod", reported(first.UID))
	l.phase(moorv1alpha1.PodStagingStaged, first)
	l.must(<-published)
	if err := os.WriteFile(filepath.Join(l.target(), "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write where it is read-only gives %v", err)
	}
	l.must(l.call(func(ctx context.Context, c csispec.NodeClient) error {
		_, err := c.NodeGetVolumeStats(ctx, &csispec.NodeGetVolumeStatsRequest{VolumeId: "h", VolumePath: l.target()})
		return err
	}))

	// Its pod dies while the agent is away; the next one clears what is left.
	stop()
	l.phase(moorv1alpha1.PodStagingBroken, first)
	l.kill(first)
	stop = l.agent()
	l.staging("that the directory was cleared", cleared)
	if _, err := os.Lstat(l.path("pav", l.staging("", nil).Name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	second := l.helper()
	l.stage("second")
	l.staging("the report of the second staging pod", reported(second.UID))
	l.phase(moorv1alpha1.PodStagingStaged, second)
	l.until("that the new volume is seen", func() bool {
		_, err := os.Stat(filepath.Join(l.target(), "second"))
		return err == nil
	})
	if n := len(l.mounts(l.target())); n != 1 {
		t.Errorf("%d mounts on the target", n)
	}
	l.end(second)
	l.must(l.Delete(t.Context(), p))
	l.until("that the endpoint is gone", func() bool {
		_, err := os.Lstat(l.path("kubelet", "plugins", "crypt"))
		return errors.Is(err, fs.ErrNotExist)
	})
	stop()
	left, err := os.ReadDir(l.path("pav"))
	l.must(err)
	sockets, err := os.ReadDir(l.path("registry"))
	l.must(err)
	left = append(left, sockets...)
	if n := len(l.mounts(l.dir)); n != 1 || len(left) != 0 {
		t.Errorf("left: mounts %v, directories %v", l.mounts(l.dir), left)
	}
}

// end has the volume unpublished, and unstaged.
func (l *life) end(pod *corev1.Pod) {
	l.t.Helper()
	unpublished := make(chan error, 1)
	go func() {
		unpublished <- l.call(func(ctx context.Context, c csispec.NodeClient) error {
			_, err := c.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: "h", TargetPath: l.target()}, grpc.WaitForReady(true))
			return err
		})
	}()
	l.staging("that it is to be unstaged", func(s *moorv1alpha1.PodStaging) bool { return !s.DeletionTimestamp.IsZero() })
	l.phase(moorv1alpha1.PodStagingUnstaging, nil)
	l.kill(pod)
	s := l.staging("that the directory was cleared", cleared)
	l.must(kube.RemoveFinalizers(l.t.Context(), l.Client, s, moorv1alpha1.FinalizerPodStaging))
	l.must(<-unpublished)
	if _, err := os.Lstat(l.target()); !errors.Is(err, fs.ErrNotExist) {
		l.t.Errorf("the target is there: %v", err)
	}
}

// TestVolumeLife is the node's part in making a volume: the report of its pod, and no file after it.
func TestVolumeLife(t *testing.T) {
	l := newLife(t)
	defer l.agent()()
	v := &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: moorv1alpha1.PodVolumeSpec{ProvisionerName: "crypt"}}
	v.Spec.Claim.Raw, v.Spec.Class.Raw = []byte("{}"), []byte("{}")
	l.create(v)
	pod, err := helperpods.Pod(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, helperpods.Helper{
		Phase: helperpods.Creation, Name: creation, Root: l.path("pav"), Directory: creation, NodeName: node,
		Labels: map[string]string{moorv1alpha1.LabelPodVolume: string(v.UID)},
		Owner:  metav1.OwnerReference{APIVersion: moorv1alpha1.GroupVersion.String(), Kind: kindVolume, Name: v.Name, UID: v.UID},
	})
	l.must(err)
	_, err = kube.PatchStatus(t.Context(), l.Client, v, func(v *moorv1alpha1.PodVolume) {
		v.Status.Phase, v.Status.Pod = moorv1alpha1.PodVolumeCreating, &moorv1alpha1.HelperPod{Namespace: "default", Name: creation, NodeName: node, Since: metav1.Now()}
	})
	l.must(err)
	l.create(pod)
	l.must(os.MkdirAll(l.path("pav", creation), 0o755))
	l.must(os.WriteFile(l.path("pav", creation, "capacity"), []byte("1Gi\n"), 0o600))
	pod.Status.Phase = corev1.PodSucceeded
	l.must(l.Status().Update(t.Context(), pod))
	l.until("the report", func() bool {
		l.must(l.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		return v.Status.Report != nil && v.Status.Report.PodUID == pod.UID && *v.Status.Report.Capacity == "1Gi"
	})
	l.kill(pod)
	l.until("that the directory is gone", func() bool {
		_, err := os.Lstat(l.path("pav", creation))
		return errors.Is(err, fs.ErrNotExist)
	})
}

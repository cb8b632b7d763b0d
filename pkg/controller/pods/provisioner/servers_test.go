package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// storage is a provisioner in memory: a volume is there as soon as ready says so.
type storage struct {
	mu    sync.Mutex
	ready map[string]bool
	asked chan string // names of volumes that are asked for and not there
}

func (s *storage) SupportsBlock(context.Context) bool { return true }

func (s *storage) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	s.mu.Lock()
	there := s.ready[o.PVName]
	s.mu.Unlock()
	if !there {
		s.asked <- o.PVName
		return nil, controller.ProvisioningInBackground, fmt.Errorf("%s is not there yet", o.PVName)
	}
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: o.PVName}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: o.StorageClass.Provisioner}},
	}}, controller.ProvisioningFinished, nil
}

func (s *storage) Delete(_ context.Context, pv *corev1.PersistentVolume) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready[pv.Name] {
		s.asked <- pv.Name
		return fmt.Errorf("%s is being removed", pv.Name)
	}
	return nil
}

func (s *storage) becomes(name string, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready[name] = there
}

func claimFor(driver string, uid types.UID) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: "c-" + driver, UID: uid, Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": driver}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(driver)},
	}
}

// TestServers: two controllers run side by side over one set of informers; what a claim or a volume waits
// for nudges it, and none is left running.
func TestServers(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	clients := fake.NewClientset(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Provisioner: "p"}, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Provisioner: "q"},
	)
	ctx, cancel := context.WithCancel(t.Context())
	all := informers.NewSharedInformerFactory(clients, 0)
	both := &storage{ready: map[string]bool{}, asked: make(chan string, 100)}
	s := &servers{
		started: make(chan struct{}), client: clients, claims: all.Core().V1().PersistentVolumeClaims().Informer(), volumes: all.Core().V1().PersistentVolumes().Informer(),
		classes: all.Storage().V1().StorageClasses().Informer(), driver: func(string) controller.Provisioner { return both },
	}
	early, give := context.WithCancel(ctx)
	give()
	if err := s.serve(early, "p"); !errors.Is(err, context.Canceled) {
		t.Errorf("served before the process may act: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	if err := s.serve(ctx, "p"); err != nil {
		t.Fatal(err)
	}
	if err := s.serve(ctx, "q"); err != nil {
		t.Fatal(err)
	}
	if err := s.serve(ctx, "q"); err != nil || len(s.running) != 2 {
		t.Errorf("%d run: %v", len(s.running), err)
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	made := watchVolumes(t, clients)
	for driver, uid := range map[string]types.UID{"p": "1", "q": "2"} {
		if _, err := clients.CoreV1().PersistentVolumeClaims("users").Create(ctx, claimFor(driver, uid), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if one, two := <-both.asked, <-both.asked; one+two != "pvc-1pvc-2" && one+two != "pvc-2pvc-1" {
		t.Errorf("asked for %s and %s", one, two)
	}
	v := &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: moorv1alpha1.PodVolumeSpec{ProvisionerName: "p"}}
	both.becomes("pvc-1", true)
	created := v.DeepCopy()
	created.Status.Phase = moorv1alpha1.PodVolumeCreated
	s.onVolumes().OnUpdate(v, created)
	pv := made(watch.Added)
	if pv.Name != "pvc-1" || pv.Spec.ClaimRef.Name != "c-p" || pv.Annotations["pv.kubernetes.io/provisioned-by"] != "p" {
		t.Errorf("%+v", pv)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if _, err := clients.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-both.asked; got != "pvc-1" {
		t.Errorf("asked for %s", got)
	}
	both.becomes("pvc-1", false)
	s.onVolumes().OnDelete(created)
	if pv := made(watch.Deleted); pv.Name != "pvc-1" {
		t.Errorf("%+v", pv)
	}
	stopped := s.running["q"]
	s.stop("q")
	s.stop("q")
	if len(s.running) != 1 || len(stopped.claims.handles)+len(stopped.volumes.handles) != 0 {
		t.Errorf("%d run", len(s.running))
	}
	if err := s.serve(ctx, "q"); err != nil { // it is back
		t.Fatal(err)
	}
	for got := ""; got != "pvc-2"; got = <-both.asked { // claim c-p is not bound here, and may be asked for again
		if got != "" && got != "pvc-1" {
			t.Errorf("asked for %s", got)
		}
	}
	cancel()
	if err := <-ended; err != nil || len(s.running) != 0 {
		t.Errorf("%d run: %v", len(s.running), err)
	}
	if err := s.serve(t.Context(), "p"); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("served after the end: %v", err)
	}
	all.Shutdown()
}

// watchVolumes returns what next happens to PersistentVolumes, of a kind.
func watchVolumes(t *testing.T, clients *fake.Clientset) func(watch.EventType) *corev1.PersistentVolume {
	t.Helper()
	w, err := clients.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return func(kind watch.EventType) *corev1.PersistentVolume {
		t.Helper()
		for {
			select {
			case e := <-w.ResultChan():
				if pv, is := e.Object.(*corev1.PersistentVolume); is && e.Type == kind {
					return pv
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("no PersistentVolume was %s", kind)
			}
		}
	}
}

//go:build api

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
	bed "github.com/moor-storage/moor/test/kit"
)

// server is an API server with the DPU cluster's kinds, which only the
// test and snap-controller use.
type server struct {
	client.WithWatch
	t *testing.T
	// kubeconfig of snap-controller's own account, with the rights of the
	// manifest and no others.
	kubeconfig string
}

func startServer(t *testing.T) *server {
	t.Helper()
	env := &envtest.Environment{
		CRDDirectoryPaths:        crds(),
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: time.Minute,
	}
	cfg, err := env.Start()
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Log("stop the API server:", err)
		}
	})
	if err != nil {
		t.Fatalf("start the API server (KUBEBUILDER_ASSETS=%q must hold kube-apiserver and etcd): %v", os.Getenv("KUBEBUILDER_ASSETS"), err)
	}
	s := &server{WithWatch: newClient(t, cfg), t: t}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kubetest.DPUNamespace}})
	if err := bed.Apply(t.Context(), s, filepath.Join("..", "..", "deploy", "dpu", "snap-controller-rbac.yaml")); err != nil {
		t.Fatal(err)
	}
	s.kubeconfig = account(t, env)
	return s
}

// crds are those of the kinds that snap-controller knows.
func crds() []string {
	out := []string{
		filepath.Join("..", "..", "crds", "dpu", "storage.moor.dev_writerclaims.yaml"),
		filepath.Join("..", "..", "crds", "dpu", "storage.moor.dev_storagesnapshots.yaml"),
	}
	for _, kind := range []string{"storagepolicies", "storagevendors", "volumes", "volumeattachments", "svvolumeattachments"} {
		out = append(out, filepath.Join("..", "..", "crds", "dpu", "storage.dpu.nvidia.com_"+kind+".yaml"))
	}
	return out
}

func newClient(t *testing.T, cfg *rest.Config) client.WithWatch {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 500, 1000
	scheme, err := dpucluster.NewScheme()
	if err == nil {
		err = rbacv1.AddToScheme(scheme)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// account writes a kubeconfig for the ServiceAccount of the manifest.
func account(t *testing.T, env *envtest.Environment) string {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: "system:serviceaccount:" + kubetest.DPUNamespace + ":snap-controller"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs the process' whole wiring in this one, until the test ends.
func (s *server) start() {
	s.t.Helper()
	o := options{kubeconfig: s.kubeconfig, namespace: kubetest.DPUNamespace}
	o.flags = kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 15, SyncPeriod: 10 * time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("run: %v", err)
		}
	})
}

func (s *server) create(obj client.Object) {
	s.t.Helper()
	if err := s.Create(context.Background(), obj); err != nil {
		s.t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

func (s *server) delete(obj client.Object) {
	s.t.Helper()
	if err := s.Delete(context.Background(), obj); err != nil {
		s.t.Fatalf("delete %T %s: %v", obj, obj.GetName(), err)
	}
}

// change patches an object; status too, if the kind has one of its own.
func change[T client.Object](s *server, obj T, spec, status func(T)) {
	s.t.Helper()
	ctx := context.Background()
	if spec != nil {
		if _, err := kube.Patch(ctx, s, obj, spec); err != nil {
			s.t.Fatal(err)
		}
	}
	if status != nil {
		if _, err := kube.PatchStatus(ctx, s, obj, status); err != nil {
			s.t.Fatal(err)
		}
	}
}

// until reads obj until ok; gone is told by exists false.
func until[T client.Object](s *server, what string, obj T, name string, ok func(exists bool) bool) {
	s.t.Helper()
	key := client.ObjectKey{Name: name}
	if namespaced, err := s.IsObjectNamespaced(obj); err != nil {
		s.t.Fatal(err)
	} else if namespaced {
		key.Namespace = kubetest.DPUNamespace
	}
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		exists, err := kube.Find(ctx, s, key, obj)
		return err == nil && ok(exists), err
	})
	if err != nil {
		s.t.Fatalf("%s: %v; last seen %s", what, err, fmt.Sprintf("%+v", obj))
	}
}

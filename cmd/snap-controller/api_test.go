//go:build api

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/api/apiserver"
)

// server is an API server of the DPU cluster, which only the test and snap-controller use.
type server struct {
	*apiserver.One
	t *testing.T
	// kubeconfig of snap-controller's own account, with the rights of the
	// manifest and no others.
	kubeconfig string
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{One: apiserver.StartOne(t, apiserver.DPU), t: t}
	s.Deploy("snap-controller-rbac.yaml")
	s.kubeconfig = s.Kubeconfig("snap-controller")
	return s
}

// start runs the process' whole wiring in this one, until the test ends.
func (s *server) start() {
	s.t.Helper()
	o := options{kubeconfig: s.kubeconfig, namespace: kubetest.DPUNamespace}
	o.flags = kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 15, SyncPeriod: 10 * time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}}
	apiserver.InBackground(s.t, "snap-controller", o.run)
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

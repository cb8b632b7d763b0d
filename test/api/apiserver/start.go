//go:build api

package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// Clusters are two API servers: one with the CRDs of the host cluster, one
// with those of the DPU cluster. Both have the namespace kit.Namespace.
type Clusters struct {
	HostConfig, DPUConfig *rest.Config
	kit.Clients

	servers []*envtest.Environment
}

// Run starts the two API servers, sets *to, runs the tests and stops them. It
// returns the exit code for TestMain.
func Run(m *testing.M, to *Clusters) int {
	clusters, err := Start(context.Background())
	defer clusters.Stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*to = *clusters
	return m.Run()
}

// Start starts the two API servers side by side. Stop must be called even
// after an error.
func Start(ctx context.Context) (*Clusters, error) {
	host, dpu := environment(), environment()
	out := &Clusters{servers: []*envtest.Environment{host, dpu}}
	var err error
	started := make(chan error, 1)
	go func() {
		var err error
		out.DPUConfig, err = dpu.Start()
		started <- err
	}()
	out.HostConfig, err = host.Start()
	if dpuErr := <-started; err == nil {
		err = dpuErr
	}
	if err != nil {
		return out, fmt.Errorf("start the API servers (KUBEBUILDER_ASSETS=%q must hold kube-apiserver and etcd): %w", os.Getenv("KUBEBUILDER_ASSETS"), err)
	}
	if out.Clients, err = kit.NewClients(out.HostConfig, out.DPUConfig); err != nil {
		return out, err
	}
	for name, c := range map[string]client.Client{"host": out.Host, "dpu": out.DPU} {
		if err := prepare(ctx, c, name); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Stop stops both.
func (c *Clusters) Stop() {
	for _, s := range c.servers {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop an API server:", err)
		}
	}
}

func environment() *envtest.Environment {
	return &envtest.Environment{ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: 20 * time.Second}
}

// prepare applies the CRDs of one cluster and makes the namespace.
func prepare(ctx context.Context, c client.Client, cluster string) error {
	root, err := devcluster.FindRoot()
	if err != nil {
		return err
	}
	if err := kit.Apply(ctx, c, filepath.Join(root, "crds", cluster)); err != nil {
		return fmt.Errorf("CRDs of the %s cluster: %w", cluster, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kit.Namespace}}
	if err := c.Create(ctx, namespace); err != nil {
		return fmt.Errorf("namespace in the %s cluster: %w", cluster, err)
	}
	return nil
}

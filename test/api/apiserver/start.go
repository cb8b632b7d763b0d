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

// The names of the clusters, as directories of crds and deploy have them. Pods is one that
// has pods as volumes and nothing else of Moor's.
const (
	Host = "host"
	DPU  = "dpu"
	Pods = "pav"
)

// namespaceOf is the namespace of Moor's objects in a cluster.
func namespaceOf(cluster string) string {
	if cluster == Pods {
		return kit.PodsNamespace
	}
	return kit.Namespace
}

// Configure changes what the server of a cluster is started with.
type Configure func(cluster string, env *envtest.Environment)

// Clusters are two API servers: one with the CRDs of the host cluster, one
// with those of the DPU cluster. Both have the namespace kit.Namespace.
type Clusters struct {
	HostConfig, DPUConfig *rest.Config
	kit.Clients

	servers map[string]*envtest.Environment
}

// Run starts the two API servers, sets *to, runs the tests and stops them. It
// returns the exit code for TestMain.
func Run(m *testing.M, to *Clusters) int {
	clusters, err := Start(context.Background(), nil)
	defer clusters.Stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*to = *clusters
	return m.Run()
}

// Start starts the two API servers side by side, as configure (nil: not at all)
// changes them. Stop must be called even after an error.
func Start(ctx context.Context, configure Configure) (*Clusters, error) {
	host, dpu := environment(Host, configure), environment(DPU, configure)
	out := &Clusters{servers: map[string]*envtest.Environment{Host: host, DPU: dpu}}
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
		return out, notStarted(err)
	}
	if out.Clients, err = kit.NewClients(out.HostConfig, out.DPUConfig); err != nil {
		return out, err
	}
	for name, c := range map[string]client.Client{Host: out.Host, DPU: out.DPU} {
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

// Server is the one of a cluster.
func (c *Clusters) Server(cluster string) *envtest.Environment { return c.servers[cluster] }

// Kubeconfig is one that acts as a ServiceAccount of kit.Namespace in a cluster.
func (c *Clusters) Kubeconfig(cluster, account string) ([]byte, error) {
	return kubeconfig(c.servers[cluster], cluster, account)
}

// notStarted says what a start that failed needs.
func notStarted(err error) error {
	return fmt.Errorf("start the API servers (KUBEBUILDER_ASSETS=%q must hold kube-apiserver and etcd): %w", os.Getenv("KUBEBUILDER_ASSETS"), err)
}

func kubeconfig(server *envtest.Environment, cluster, account string) ([]byte, error) {
	user, err := server.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + namespaceOf(cluster) + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespaceOf(cluster), "system:authenticated"},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate of %s in the %s cluster: %w", account, cluster, err)
	}
	config, err := user.KubeConfig()
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s in the %s cluster: %w", account, cluster, err)
	}
	return config, nil
}

func environment(cluster string, configure Configure) *envtest.Environment {
	out := &envtest.Environment{ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: 20 * time.Second}
	if configure != nil {
		configure(cluster, out)
	}
	return out
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
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(cluster)}}
	if err := c.Create(ctx, namespace); err != nil {
		return fmt.Errorf("namespace in the %s cluster: %w", cluster, err)
	}
	return nil
}

package apiserver

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// One is the API server of one cluster, with its CRDs and the namespace of Moor's objects, for
// the test of one program. Its client is an administrator's, without a limit of requests.
type One struct {
	client.WithWatch
	Config *rest.Config

	t       *testing.T
	cluster string
	server  *envtest.Environment
}

// StartOne starts the API server of a cluster. It is stopped when the test ends.
func StartOne(t *testing.T, cluster string) *One {
	t.Helper()
	o := &One{t: t, cluster: cluster, server: environment(cluster, nil)}
	config, err := o.server.Start()
	t.Cleanup(func() {
		if err := o.server.Stop(); err != nil {
			t.Log("stop the API server:", err)
		}
	})
	if err != nil {
		t.Fatal(notStarted(err))
	}
	o.Config = rest.CopyConfig(config)
	o.Config.QPS = -1
	scheme, err := kit.Scheme()
	o.must(err)
	o.WithWatch, err = client.NewWithWatch(o.Config, client.Options{Scheme: scheme})
	o.must(err)
	o.must(prepare(t.Context(), o, cluster))
	return o
}

// Deploy applies manifests of deploy/<cluster>.
func (o *One) Deploy(manifests ...string) {
	o.t.Helper()
	root, err := devcluster.FindRoot()
	o.must(err)
	for _, name := range manifests {
		o.must(kit.Apply(o.t.Context(), o, filepath.Join(root, "deploy", o.cluster, name)))
	}
}

// Kubeconfig writes the file of one that acts as a ServiceAccount of that namespace, with the
// rights that Deploy has given it and no others, and returns its path.
func (o *One) Kubeconfig(account string) string {
	o.t.Helper()
	config, err := kubeconfig(o.server, o.cluster, account)
	o.must(err)
	path := filepath.Join(o.t.TempDir(), "kubeconfig")
	o.must(os.WriteFile(path, config, 0o600))
	return path
}

// AdminKubeconfig is that of an administrator.
func (o *One) AdminKubeconfig() []byte { return o.server.KubeConfig }

func (o *One) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// InBackground runs a program, or what else runs until it is told to end, until the test ends.
func InBackground(t *testing.T, what string, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
}

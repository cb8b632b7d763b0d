package main

import (
	"context"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/moor-storage/moor/internal/kube"
)

// TestNodeStartsWithoutAPIServer: the plugin of a host that asks for volumes by itself comes up while
// the API server is away. The kubelet has it unmount volumes then.
func TestNodeStartsWithoutAPIServer(t *testing.T) {
	o := options{namespace: "moor", kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), node: nodeOptions{id: "host-1"}}
	o.api.QPS, o.api.Burst = 1, 1
	away := clientcmdapi.NewConfig()
	away.Clusters["c"], away.Contexts["x"], away.CurrentContext = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}, &clientcmdapi.Context{Cluster: "c"}, "x"
	if err := clientcmd.WriteToFile(*away, o.kubeconfig); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if _, err := o.nodeAttachments(ctx, func(err error) { ended <- err }, &kube.Informers{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the cache ended with %v", err)
	}
}

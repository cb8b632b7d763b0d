package main

import (
	"context"
	"testing"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestNodeStartsWithoutAPIServer: the plugin of a host that asks for volumes by itself comes up while
// the API server is away. The kubelet has it unmount volumes then.
func TestNodeStartsWithoutAPIServer(t *testing.T) {
	o := options{namespace: "moor", kubeconfig: kubetest.Away(t), node: nodeOptions{id: "host-1"}}
	o.api.QPS, o.api.Burst = 1, 1
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

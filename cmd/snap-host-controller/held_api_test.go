//go:build api

package main

import (
	"testing"

	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/api/apiserver"
)

// TestNothingIsListedLate: a replica that takes over has all that its controllers watch, in
// both attach modes.
func TestNothingIsListedLate(t *testing.T) {
	host, dpu := apiserver.StartOne(t, apiserver.Host), apiserver.StartOne(t, apiserver.DPU)
	host.Deploy("snap-host-controller-rbac.yaml")
	dpu.Deploy("snap-host-controller-rbac.yaml")
	for _, mode := range []string{"Controller", "Node"} {
		t.Run(mode, func(t *testing.T) {
			o, err := parse(t, "--kubeconfig="+host.Kubeconfig("snap-host-controller"), "--dpu-cluster-kubeconfig="+dpu.Kubeconfig("snap-host-controller"),
				"--metrics-bind-address=0", "--health-probe-bind-address=0", "--attach-mode="+mode)
			if err != nil {
				t.Fatal(err)
			}
			mgr, c, err := o.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w := kubetest.WatchesOf(mgr)
			c.Host.Cache, c.DPU.Cache = w.GetCache(), w.CacheOf("DPU cluster", c.DPU.Cache)
			if err := o.setUp(t.Context(), w, c); err != nil {
				t.Fatal(err)
			}
			if late := w.Late(t); len(late) > 0 {
				t.Errorf("controllers list first what no cache holds: %v", late)
			}
		})
	}
}

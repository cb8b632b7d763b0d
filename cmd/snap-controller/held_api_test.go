//go:build api

package main

import (
	"testing"
	"time"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestNothingIsListedLate: a replica that takes over has all that its controllers watch.
func TestNothingIsListedLate(t *testing.T) {
	s := startServer(t)
	o := options{kubeconfig: s.kubeconfig, namespace: kubetest.DPUNamespace}
	o.flags = kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 1, SyncPeriod: time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}}
	mgr, err := o.manager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := kubetest.WatchesOf(mgr)
	if err := o.setUp(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if late := w.Late(t); len(late) > 0 {
		t.Errorf("controllers list first what no cache holds: %v", late)
	}
}

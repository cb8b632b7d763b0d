//go:build api

package main

import (
	"testing"
	"time"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/attacher"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

// TestNothingIsListedLate: a replica that takes over has all that its controller watches, for
// drivers that fence and others.
func TestNothingIsListedLate(t *testing.T) {
	_, kubeconfig := startServer(t)
	connection, err := attacher.Connect(startDriver(t, provisionertest.NewFake()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	for name, features := range map[string]attacher.Features{"fences": {Publish: true, Fence: true}, "fences not": {Publish: true}} {
		t.Run(name, func(t *testing.T) {
			o := &options{
				kubeconfig: kubeconfig, namespace: namespace, timeout: time.Minute,
				flags: kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 1, SyncPeriod: time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}},
				retry: attacher.Retry{Start: time.Second, Max: time.Second, Workers: 1},
			}
			mgr, err := o.manager(driver)
			if err != nil {
				t.Fatal(err)
			}
			w := kubetest.WatchesOf(mgr)
			if err := o.setUp(t.Context(), w, connection, driver, features); err != nil {
				t.Fatal(err)
			}
			if late := w.Late(t); len(late) > 0 {
				t.Errorf("the controller lists first what no cache holds: %v", late)
			}
		})
	}
}

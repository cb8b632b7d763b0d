//go:build api

package dpupairing

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

// TestPairing: with the rights of snap-host-controller, before DPF is there and after. A
// host's DPU is named as soon as both are there, whichever is first, and stays.
func TestPairing(t *testing.T) {
	ctrl.SetLogger(klog.Background())
	api := apiserver.StartOne(t, apiserver.Host)
	api.Deploy("snap-host-controller-rbac.yaml")
	config, err := clientcmd.BuildConfigFromFlags("", api.Kubeconfig("snap-host-controller"))
	must(t, err)
	scheme, err := kube.NewScheme(moorv1alpha1.AddHostToScheme)
	must(t, err)
	flags := kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 2, SyncPeriod: time.Hour, Rate: kube.Rate{QPS: -1}}
	mgr, err := kube.NewManager(config, scheme, flags, "test", cache.Options{DefaultNamespaces: map[string]cache.Config{kit.Namespace: {}}})
	must(t, err)
	r := &Reconciler{
		Host: kube.ClusterOf(mgr), Namespace: kit.Namespace,
		//lint:ignore SA1019 as in snap-host-controller
		Recorder: mgr.GetEventRecorderFor("test"),
	}
	if reason, err := r.missing(t.Context()); reason == "" || err != nil {
		t.Errorf("DPUs are not served, and it is said: %q, %v", reason, err)
	}
	must(t, kit.Apply(t.Context(), api, filepath.Join("testdata", "dpus.yaml")))
	until(t, "the API server serves what it has taken", func(ctx context.Context) (bool, error) {
		reason, err := r.missing(ctx)
		return reason == "", err
	})
	must(t, r.Setup(t.Context(), mgr))
	apiserver.InBackground(t, "manager", mgr.Start)

	must(t, api.Create(t.Context(), served("worker-1-0000-08-00", "worker-1")))
	must(t, api.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
	named(t, api, "worker-1", "worker-1-0000-08-00", moorv1alpha1.Trusted)

	must(t, api.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}))
	must(t, api.Create(t.Context(), served("worker-2-0000-08-00", "worker-2")))
	named(t, api, "worker-2", "worker-2-0000-08-00", moorv1alpha1.Trusted)

	zero := served("dpu-node-mt1-mt1", "dpu-node-mt1")
	must(t, api.Create(t.Context(), zero))
	must(t, unstructured.SetNestedField(zero.Object, "zero-trust", "status", "deploymentMode"))
	must(t, api.Status().Update(t.Context(), zero))
	named(t, api, "dpu-node-mt1", "dpu-node-mt1-mt1", moorv1alpha1.ZeroTrust)

	inCluster := func(o *unstructured.Unstructured, name string) *unstructured.Unstructured {
		must(t, unstructured.SetNestedStringMap(o.Object, map[string]string{"namespace": "dpf", "name": name}, "spec", "cluster"))
		return o
	}
	must(t, api.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-4"}}))
	must(t, api.Create(t.Context(), inCluster(served("worker-4-0000-08-00", "worker-4"), "a")))
	named(t, api, "worker-4", "worker-4-0000-08-00", moorv1alpha1.Trusted)
	must(t, api.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-5"}}))
	must(t, api.Create(t.Context(), inCluster(served("worker-5-0000-08-00", "worker-5"), "b")))
	told(t, api, "worker-5", "DPF has DPUs in several DPU clusters, dpf/a, dpf/b")
	named(t, api, "worker-5", "", moorv1alpha1.Trusted)

	byHand := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-3"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "by-hand"}}
	must(t, api.Create(t.Context(), byHand))
	must(t, api.Create(t.Context(), served("worker-3-0000-08-00", "worker-3")))
	told(t, api, "worker-3", "DPF has DPU worker-3-0000-08-00 in this host, and spec.dpuName is by-hand")
	named(t, api, "worker-3", "by-hand", moorv1alpha1.Trusted)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// served is a DPU of a host.
func served(name, host string) *unstructured.Unstructured {
	o := object()
	o.SetNamespace(kit.Namespace)
	o.SetName(name)
	o.Object["spec"] = map[string]any{"dpuNodeName": host}
	return o
}

func until(t *testing.T, what string, ok func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func named(t *testing.T, api client.Client, host, dpu string, mode moorv1alpha1.HostMode) {
	t.Helper()
	got := &moorv1alpha1.DPUStorageNode{}
	until(t, "DPU "+dpu+" is named in host "+host, func(ctx context.Context) (bool, error) {
		err := api.Get(ctx, client.ObjectKey{Name: host}, got)
		return err == nil && got.Spec.DPUName == dpu && got.Spec.HostMode == mode, client.IgnoreNotFound(err)
	})
}

func told(t *testing.T, api client.Client, host, words string) {
	t.Helper()
	until(t, "host "+host+" is told: "+words, func(ctx context.Context) (bool, error) {
		var all corev1.EventList
		err := api.List(ctx, &all)
		for _, e := range all.Items {
			if e.InvolvedObject.Name == host && e.Reason == moorv1alpha1.ReasonDPUNotNamed && strings.HasPrefix(e.Message, words) {
				return true, nil
			}
		}
		return false, err
	})
}

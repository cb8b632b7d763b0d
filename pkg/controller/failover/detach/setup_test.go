package detach

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// TestSetUp: it becomes a controller of its manager, which refuses a second of the same name.
// Without one no right to write would end in order.
func TestSetUp(t *testing.T) {
	scheme, err := kube.NewScheme(storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{}
	_ = r.SetupWithManager(mgr) // a name is taken for as long as the process lives, so by an earlier run of this test
	if err := r.SetupWithManager(mgr); err == nil || !strings.Contains(err.Error(), "fence") {
		t.Errorf("the second of its name: %v", err)
	}
}

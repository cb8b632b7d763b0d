package volume

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// oneNamespace is a cache of one namespace, as snap-controller has it: it refuses to be asked for another.
type oneNamespace struct{ client.Client }

func (c oneNamespace) List(ctx context.Context, list client.ObjectList, of ...client.ListOption) error {
	if ns := (&client.ListOptions{}).ApplyOptions(of).Namespace; ns != "" && ns != kubetest.DPUNamespace {
		return fmt.Errorf("unable to get: %s: unknown namespace for the cache", ns)
	}
	return c.Client.List(ctx, list, of...)
}

// A PersistentVolume wakes the Volume whose claim it is for; one for a claim of another namespace wakes none,
// also if the claim has the name of one of ours, and is no error.
func TestOfPV(t *testing.T) {
	c := kubetest.NewDPU(t)
	v := kubetest.Volume("v", "gold")
	v.Spec.Volume.CSIReference.PVCRef = &storagev1alpha1.ObjectRef{Name: "v-pvc", Namespace: kubetest.DPUNamespace}
	c.Add(v)
	r := &Reconciler{DPU: c.Cluster}
	r.DPU.Client = oneNamespace{r.DPU.Client}
	var said []string
	ctx := ctrl.LoggerInto(t.Context(), logr.New(funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}).GetSink()))
	for namespace, want := range map[string][]reconcile.Request{
		kubetest.DPUNamespace: {kube.RequestFor(kubetest.DPUNamespace, "v")}, "default": nil,
	} {
		pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: "v-pvc"}}}
		got := r.ofPV(ctx, pv)
		if len(got) != len(want) || len(got) > 0 && !cmp.Equal(got, want) {
			t.Errorf("of namespace %s: %v, want %v", namespace, got, want)
		}
	}
	if len(said) > 0 {
		t.Errorf("it says %q", said)
	}
}

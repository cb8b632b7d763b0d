package dpu

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestStaleClaim: the cache shows a claim that is granted to this DPU; it was
// freed. Nothing may be exposed.
func TestStaleClaim(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	granted := &moorv1alpha1.WriterClaim{}
	c.must(c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "v1"}, granted))
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1})
	m.o.Attachments.DPU.Client = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if claim, ok := o.(*moorv1alpha1.WriterClaim); ok {
				granted.DeepCopyInto(claim)
				return nil
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	m.settle(a.Name)
	if len(m.shown()) != 0 {
		t.Fatalf("shown %v", m.shown())
	}
}

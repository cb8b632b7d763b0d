//go:build api

package nodepolicy

import (
	"context"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/kit"
)

// TestOperatorReceipts: who vouches stands in the word, and is who wrote it; a word that stands
// is not in the way of others who write the object.
func TestOperatorReceipts(t *testing.T) {
	must(t, kit.Apply(t.Context(), clusters.DPU, filepath.Join("..", "..", "..", "deploy", "dpu", "operator-receipt-policy.yaml")))
	claim := &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vouched"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vouched"}}
	must(t, clusters.DPU.Create(t.Context(), claim))
	t.Cleanup(func() { must(t, clusters.DPU.Delete(context.WithoutCancel(t.Context()), claim)) })
	vouch := func(by string) *moorv1alpha1.OperatorReceipt {
		now := metav1.Now().Rfc3339Copy()
		return &moorv1alpha1.OperatorReceipt{Epoch: 1, Holder: "dpu-a", AttachmentUID: "u", Time: &now, Operator: by, Reason: "it was scrapped"}
	}
	write := func(change func(*moorv1alpha1.WriterClaim), options ...client.PatchOption) error {
		c := claim.DeepCopy()
		change(c)
		err := clusters.DPU.Patch(t.Context(), c, client.MergeFrom(claim), options...)
		if err == nil && len(options) == 0 {
			claim = c
		}
		return err
	}
	forged := func(c *moorv1alpha1.WriterClaim) { c.Spec.OperatorReceipt = vouch("someone else") }
	soonRefused(t, func() error { return write(forged, client.DryRunAll) }, "spec.operatorReceipt.operator must be your user name, ")
	self := userName(t, clusters.DPUConfig)
	must(t, write(func(c *moorv1alpha1.WriterClaim) { c.Spec.OperatorReceipt = vouch(self) }))
	must(t, write(func(c *moorv1alpha1.WriterClaim) { c.Labels = map[string]string{"by": "another"} }))
	refused(t, write(func(c *moorv1alpha1.WriterClaim) { c.Spec.OperatorReceipt.Operator = "jane" }), "must be your user name")
	must(t, write(func(c *moorv1alpha1.WriterClaim) { c.Spec.OperatorReceipt = nil }))
	made := claim.DeepCopy()
	made.Name, made.ResourceVersion, made.UID, made.Spec.OperatorReceipt = "made", "", "", vouch("jane")
	refused(t, clusters.DPU.Create(t.Context(), made, client.DryRunAll), "must be your user name")
}

//go:build api

package schema

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
)

// TestHeldClaimIsNotDeleted: what is deployed refuses the deletion of a claim that is held,
// and of no other.
func TestHeldClaimIsNotDeleted(t *testing.T) {
	if err := kit.Apply(t.Context(), clusters.DPU, filepath.Join("..", "..", "..", "deploy", "dpu", "writerclaim-policy.yaml")); err != nil {
		t.Fatal(err)
	}
	o := object(t, "WriterClaim")
	mustCreate(t, o)
	set(t, o, "status", yamlText("{phase: Granted, holder: d, attachment: a, epoch: 1}"))
	if err := clusters.DPU.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 100 { // a policy is in force some time after it was made
		if err = clusters.DPU.Delete(t.Context(), o, client.DryRunAll); err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is Granted (DPU d)") {
		t.Fatalf("deleting a claim that is held: %v", err)
	}
	set(t, o, "status", yamlText("{phase: Free, epoch: 1}"))
	if err := clusters.DPU.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := clusters.DPU.Delete(t.Context(), o); err != nil {
		t.Errorf("deleting one that is free: %v", err)
	}
}

//go:build api

package schema

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
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
	// A policy is in force some time after it was made.
	_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err = clusters.DPU.Delete(ctx, o, client.DryRunAll)
		return err != nil, nil
	})
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

//go:build api

package dpf_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// tellStuck says why a volume has not the size that it is asked for.
func (p player) tellStuck(v *storagev1alpha1.DPUVolume) {
	have, asked := v.Status.State.VolumeInfo.Capacity[corev1.ResourceStorage], v.Spec.Resources.Requests[corev1.ResourceStorage]
	if have.Cmp(asked) == 0 {
		return
	}
	reason := storagev1alpha1.ReasonPending
	if p.refuses {
		reason = storagev1alpha1.ReasonFailure
	}
	kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}.False(storagev1alpha1.ConditionExpanded, reason, "the array is full")
}

// TestExpansionWords: who waits in vain is told why; what the vendor refuses is
// told at once, and can be taken back for less.
func TestExpansionWords(t *testing.T) {
	for name, c := range map[string]struct {
		refuses bool
		want    error
	}{
		"waits":   {false, context.DeadlineExceeded},
		"refused": {true, provisioner.ErrOutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			platform := onServer(t, player{stuck: true, refuses: c.refuses})
			spec := provisioner.VolumeSpec{Name: "v", CapacityBytes: 1 << 20, LimitBytes: 1 << 21, Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}
			v, err := platform.Volumes.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = platform.Expansion.Expand(ctx, v.ID, 4<<20, 0) // past the limit of its making
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "the array is full") {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if _, err := platform.Expansion.Expand(ctx, v.ID, 2<<20, 0); !errors.Is(err, c.want) && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("less: %v", err)
			}
			if size, err := platform.Expansion.Expand(ctx, v.ID, 1<<20, 0); size != 1<<20 || err != nil {
				t.Fatalf("what it has: %d, %v", size, err)
			}
		})
	}
}

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/scale/fleet"
)

// history is when what happened to volumes, as watches tell it.
type history struct {
	mu      sync.Mutex
	changed chan struct{}
	// asked is when the attachment was there, granted, fenced and free when the claim
	// was, or began to be.
	asked, granted, fenced, free map[string]time.Time
}

func newHistory() *history {
	return &history{changed: make(chan struct{}), asked: map[string]time.Time{}, granted: map[string]time.Time{}, fenced: map[string]time.Time{}, free: map[string]time.Time{}}
}

// note notes when a volume came to be so, first.
func (h *history) note(in map[string]time.Time, volume string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := in[volume]; !known {
		in[volume] = time.Now()
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// watchClaims notes grants and ends of grants until ctx ends.
func (h *history) watchClaims(ctx context.Context, dpu client.WithWatch) error {
	return fleet.Follow(ctx, dpu, &moorv1alpha1.WriterClaimList{}, func(o client.Object) {
		c, ok := o.(*moorv1alpha1.WriterClaim)
		switch {
		case !ok || c.Status == nil:
		case c.Status.Phase == moorv1alpha1.ClaimGranted:
			h.note(h.granted, c.Name)
		case c.Status.Phase == moorv1alpha1.ClaimFencing:
			h.note(h.fenced, c.Name)
		case c.Status.Phase == moorv1alpha1.ClaimFree && c.Status.Epoch > 0:
			h.note(h.free, c.Name)
		}
	})
}

// watchRequests notes attachments that are asked for until ctx ends.
func (h *history) watchRequests(ctx context.Context, host client.WithWatch) error {
	return fleet.Follow(ctx, host, &storagev1alpha1.DPUVolumeAttachmentList{}, func(o client.Object) {
		if a, ok := o.(*storagev1alpha1.DPUVolumeAttachment); ok {
			h.note(h.asked, a.Spec.DPUVolumeName)
		}
	})
}

// takenBack are the volumes whose grants ended, or are being ended, since a moment,
// but for those that had to.
func (h *history) takenBack(since time.Time, but []string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]bool{}
	for _, in := range []map[string]time.Time{h.fenced, h.free} {
		for volume, at := range in {
			if at.After(since) && !slices.Contains(but, volume) {
				out[volume] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// last waits until all the volumes have come to be so, and returns when the last of
// them did. in is one of the maps of h.
func (h *history) last(ctx context.Context, in map[string]time.Time, volumes []string, patience time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		h.mu.Lock()
		changed, missing := h.changed, 0
		var last time.Time
		for _, v := range volumes {
			at, known := in[v]
			if !known {
				missing++
			}
			if at.After(last) {
				last = at
			}
		}
		h.mu.Unlock()
		if missing == 0 {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, fmt.Errorf("not so for %d of %d volumes after %s", missing, len(volumes), patience)
		}
	}
}

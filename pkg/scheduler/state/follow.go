package state

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Informers are where the watches come from; controller-runtime's cache is
// one.
type Informers interface {
	// GetInformer returns the informer of an object's kind. It does not wait
	// until the informer has its first list if the options say so.
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// feed is one kind's watch.
type feed struct {
	kind   string
	synced func() bool
}

// Follow keeps the index up to date by the informers given, which the caller
// runs. It is called once, and returns as soon as the handlers are in place.
func (s *Store) Follow(ctx context.Context, informers Informers) error {
	var feeds []feed
	for kind, object := range map[string]client.Object{
		"PersistentVolumeClaims": &corev1.PersistentVolumeClaim{},
		"PersistentVolumes":      &corev1.PersistentVolume{},
		"DPUVolumeAttachments":   &storagev1alpha1.DPUVolumeAttachment{},
		"DPUStorageNodes":        &moorv1alpha1.DPUStorageNode{},
	} {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %s (are the CRDs of the host cluster installed?): %w", kind, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    s.Set,
			UpdateFunc: func(_, o any) { s.Set(o) },
			DeleteFunc: s.Remove,
		})
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		feeds = append(feeds, feed{kind, registration.HasSynced})
	}
	s.feeds.Store(&feeds)
	return nil
}

// Ready is nil once the first list of every kind is in the index, and stays so
// when the API server is lost. Otherwise its error says what is missing.
func (s *Store) Ready() error {
	feeds := s.feeds.Load()
	if feeds == nil {
		return fmt.Errorf("the index is empty: the watches have not begun")
	}
	var missing []string
	for _, f := range *feeds {
		if !f.synced() {
			missing = append(missing, f.kind)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("the index is not complete: the first list of %s has not come yet", strings.Join(missing, ", "))
	}
	return nil
}

// Age is how long ago the API server last answered a probe; false if it never
// did. Watches may be behind by no more than this and the time they take to
// start again.
func (s *Store) Age() (time.Duration, bool) {
	last := s.contact.Load()
	if last == nil {
		return 0, false
	}
	return max(0, s.clock.Since(*last)), true
}

// Probe asks the API server once, and notes that it answered.
func (s *Store) Probe(ctx context.Context, ask func(context.Context) error) error {
	if err := ask(ctx); err != nil {
		if age, ever := s.Age(); ever {
			return fmt.Errorf("the API server does not answer; serving on from an index %s old: %w", age.Round(time.Second), err)
		}
		return fmt.Errorf("the API server has not answered yet: %w", err)
	}
	now := s.clock.Now()
	s.contact.Store(&now)
	return nil
}

// Probing returns a runnable that probes at once and then each period until
// its context ends. It logs when the API server is lost, and when it is back.
func (s *Store) Probing(period time.Duration, ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		log := ctrl.LoggerFrom(ctx).WithName("state")
		ticker := s.clock.NewTicker(period)
		defer ticker.Stop()
		for lost := false; ; {
			probe, cancel := context.WithTimeout(ctx, period)
			err := s.Probe(probe, ask)
			cancel()
			if (err != nil) != lost && ctx.Err() == nil {
				lost = err != nil
				log.Info("contact with the API server changed", "lost", lost, "error", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
			}
		}
	}
}

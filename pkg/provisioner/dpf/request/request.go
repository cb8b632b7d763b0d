// Package request is what a request is, made as an object in the host cluster:
// where it is written, how long its controllers are waited for, what is told
// about a wait without result, and how it is taken back. It knows no kind.
package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Options say where the objects live.
type Options struct {
	// Client reads from Cache and writes to the host cluster.
	Client client.Client
	// Cache watches DPUVolumes and DPUVolumeAttachments of Namespace; for
	// NodeAttachments, the node's own DPUVolumeAttachments are enough.
	Cache cache.Cache
	// Live reads the API server itself. NodeAttachments need it, and so does a process that
	// is not the only one: its Cache may not show yet what another has made.
	Live client.Reader
	// Namespace of all objects.
	Namespace string
	// Timeout of one wait for the controllers behind; 0 means 2 minutes,
	// DPF's value, and 30 seconds for NodeAttachments.
	Timeout time.Duration
}

// Waited turns the end of a wait into words: what was waited for and what the
// object's conditions say about it.
func Waited(err error, what string, conditions []metav1.Condition) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", what, err)
	}
	words := "its controller has not looked at it yet; is snap-host-controller running?"
	if ready := meta.FindStatusCondition(conditions, storagev1alpha1.ConditionReady); ready != nil && ready.Message != "" {
		words = ready.Message
	}
	return fmt.Errorf("%s: %w: %s", what, err, words)
}

// False is the condition of that type if it is False.
func False(conditions []metav1.Condition, kind string) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

// Refused maps what the API server says to the kinds of failure of a platform.
func Refused(what string, err error) error {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%s: %w: %w", what, provisioner.ErrInvalid, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w: %w", what, provisioner.ErrBusy, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w: %w", what, provisioner.ErrPrecondition, err)
	}
	return fmt.Errorf("%s: %w: %w", what, provisioner.ErrUnavailable, err)
}

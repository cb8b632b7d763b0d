package events

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
)

// component is the source of the events.
const component = "snap-host-controller"

// nameAtMost leaves room for the rest of an event's name; messageAtMost is what
// the API server takes of an event's message.
const (
	nameAtMost    = 200
	messageAtMost = 1024
)

// copyOf is an event, repeated on another object with a message of its own. Its name
// is made of both, and its count and times are the event's own: to repeat it
// again changes nothing.
func copyOf(e *corev1.Event, about corev1.ObjectReference, message string) *corev1.Event {
	if len(message) > messageAtMost {
		message = strings.ToValidUTF8(message[:messageAtMost-3], "") + "..."
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(e.UID) + "/" + e.Name + "/" + string(about.UID) + "/" + about.Name))
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%.*s.%016x", nameAtMost, about.Name, h.Sum64())},
		InvolvedObject: about, Type: e.Type, Reason: e.Reason, Message: message,
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      e.FirstTimestamp, LastTimestamp: e.LastTimestamp, Count: e.Count,
	}
}

// mirror writes the copy of an event.
func mirror(ctx context.Context, c client.Client, out *corev1.Event) error {
	err := c.Create(ctx, out)
	if apierrors.IsAlreadyExists(err) {
		err = renew(ctx, c, out)
	}
	switch {
	case err == nil, kube.IsNotFound(err):
		return nil // a namespace that is gone needs no events
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	about := out.InvolvedObject
	return fmt.Errorf("tell %s on %s %s/%s: %w", out.Reason, about.Kind, about.Namespace, about.Name, err)
}

// same reports whether a copy tells what the other does.
func same(a, b *corev1.Event) bool {
	return a.Count == b.Count && a.LastTimestamp.Equal(&b.LastTimestamp) && a.Message == b.Message
}

// renew brings what counts of an event up to date, without reading it.
func renew(ctx context.Context, c client.Client, e *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message})
	if err != nil {
		return fmt.Errorf("write a patch of event %s: %w", e.Name, err)
	}
	return c.Patch(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}, client.RawPatch(types.MergePatchType, patch))
}

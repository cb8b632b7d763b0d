package dpudrain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// atOnce is how many pods of a host may be ending at once by a drain.
const atOnce = 5

// A pod that was refused is asked for again after a pause, which grows with the age of the
// drain: what a budget waits for takes minutes as soon as it takes long.
const (
	firstPause = 2 * time.Second
	lastPause  = time.Minute
	ageToPause = 8
)

// evictTimeout bounds one request.
const evictTimeout = 10 * time.Second

// pause is after what time a pod is asked for again that was refused.
func pause(age time.Duration) time.Duration {
	return min(lastPause, max(firstPause, age/ageToPause))
}

// evict has pods of the host evicted, each as its budget allows it, and says what became of
// each.
func (r *Reconciler) evict(ctx context.Context, node *moorv1alpha1.DPUStorageNode, age time.Duration, pods []corev1.Pod) []user {
	users, room := make([]user, len(pods)), atOnce
	for i := range pods {
		if users[i] = userOf(&pods[i]); users[i].ending {
			room--
		}
	}
	for i := range pods {
		u := &users[i]
		if u.ending || u.kept != "" {
			continue
		}
		now := r.Clock.Now()
		if u.refusal, u.again = r.refused.Get(pods[i].UID, now); u.again > 0 {
			continue
		}
		if room <= 0 {
			continue
		}
		if u.refusal = r.evictOne(ctx, node, &pods[i]); u.refusal.words != "" {
			u.again = pause(age)
			r.refused.Note(pods[i].UID, u.refusal, now, now.Add(u.again))
			continue
		}
		u.ending = true
		room--
	}
	return users
}

// evictOne asks for the eviction of exactly the pod that was read, and returns why it is
// refused; no words if it is not.
func (r *Reconciler) evictOne(ctx context.Context, node *moorv1alpha1.DPUStorageNode, pod *corev1.Pod) refusal {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	err := r.Host.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	switch {
	case kube.IsNotFound(err) || apierrors.IsConflict(err):
		return refusal{} // it has gone, and the next pass sees what came
	case err != nil:
		return refusalOf(err)
	}
	r.Recorder.Event(pod, corev1.EventTypeNormal, moorv1alpha1.EventDrainEvicted, fmt.Sprintf("evicted from host %s: %s", node.Name, node.Spec.Draining()))
	return refusal{}
}

// refusalOf is why an eviction was refused, in the words of the budget if it was that.
func refusalOf(err error) refusal {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return refusal{words: err.Error()}
	}
	var budgets []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == policyv1.DisruptionBudgetCause {
			budgets = append(budgets, c.Message)
		}
	}
	if len(budgets) == 0 {
		return refusal{words: err.Error()}
	}
	return refusal{strings.Join(budgets, ", "), true}
}

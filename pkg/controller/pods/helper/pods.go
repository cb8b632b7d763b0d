package helper

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Pods are the helper pods of a cluster.
type Pods struct {
	kube.Cluster
	// Root is the directory of the nodes beneath which helper pods have theirs.
	Root string
	// HoldImage is that of pods.Helper.
	HoldImage string
	// Metrics tell how pods end; nil: they are not counted.
	Metrics *Metrics
}

// Refused is an error of a pod that the API server does not take: it would not take it the next time
// either.
type Refused struct{ Err error }

func (r *Refused) Error() string { return r.Err.Error() }

func (r *Refused) Unwrap() error { return r.Err }

// Order is a pod that is to be made.
type Order struct {
	Phase    pods.Phase
	Record   *moorv1alpha1.HelperPod
	Template *corev1.PodTemplateSpec
	// NodeName is empty where the scheduler chooses, which never takes NotOn.
	NodeName, NotOn string
	// Directory is the name of the directory that is /pav of it; empty: it has none.
	Directory string
}

// See looks for the pod of a record, in the cache, and, before it is called gone, in the API server
// itself.
func (p Pods) See(ctx context.Context, w Work, record *moorv1alpha1.HelperPod) (Seen, error) {
	pod := &corev1.Pod{}
	found, err := kube.Find(ctx, p.Client, Key(record), pod)
	if err == nil && (!found || !w.meant(record, pod)) {
		pod = &corev1.Pod{}
		found, err = kube.Find(ctx, p.Live, Key(record), pod)
	}
	switch {
	case err != nil:
		return Seen{}, err
	case !found:
		return Seen{}, nil
	case !w.meant(record, pod):
		return Seen{Foreign: record.UID == ""}, nil
	}
	gone, err := p.NodeGone(ctx, pod.Spec.NodeName)
	return Seen{Pod: pod, NodeGone: gone}, err
}

// meant reports whether a pod of the name in a record is that of the record.
func (w Work) meant(record *moorv1alpha1.HelperPod, pod *corev1.Pod) bool {
	if record.UID != "" {
		return pod.UID == record.UID
	}
	return w.owns(pod)
}

// NodeGone reports whether there is no such Node any more, by what the API server itself says.
func (p Pods) NodeGone(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	for _, from := range []client.Reader{p.Client, p.Live} {
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		found, err := kube.Find(ctx, from, client.ObjectKey{Name: name}, node)
		if found || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Make makes the pod that a status records. The record is looked for in the API server itself first:
// by an old reading of it, a pod would be made whose time is over. An error that is *Refused stays.
func (p Pods) Make(ctx context.Context, w Work, o Order) error {
	if err := p.current(ctx, w); err != nil {
		return err
	}
	o.Template = o.Template.DeepCopy()
	o.Template.Namespace = o.Record.Namespace
	pod, err := pods.Pod(o.Template, pods.Helper{
		Phase: o.Phase, Name: o.Record.Name, Root: p.Root, Directory: o.Directory, HoldImage: p.HoldImage, NodeName: o.NodeName, NotOn: o.NotOn, Owner: w.owner(),
		Labels: map[string]string{w.Label: string(w.Object.GetUID()), moorv1alpha1.LabelHelperPhase: string(o.Phase)},
	})
	if err != nil {
		return &Refused{err}
	}
	keepLastWords(pod)
	if _, err := kube.CreateLive(ctx, p.Client, p.Live, pod); err != nil {
		return refusal(err)
	}
	return nil
}

// keepLastWords has the end of the log of a container that fails told in the pod's status, from where it gets
// into messages.
func keepLastWords(pod *corev1.Pod) {
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			if all[i].TerminationMessagePolicy == "" {
				all[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
			}
		}
	}
}

// refusal is *Refused if the API server has looked at a pod and does not take it.
func refusal(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || kube.IsNotFound(err) {
		return &Refused{err}
	}
	return err
}

// current is a conflict unless the object is as it was read.
func (p Pods) current(ctx context.Context, w Work) error {
	live, ok := w.Object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", w.Object)
	}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(w.Object), live); err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("read %s %s again: %w", w.Kind, w.Object.GetName(), err)
	} else if err == nil && live.GetUID() == w.Object.GetUID() && live.GetResourceVersion() == w.Object.GetResourceVersion() {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: w.Kind}, w.Object.GetName(), errors.New("what was read of it is old"))
}

// Note writes into a record what is seen of its pod.
func Note(record *moorv1alpha1.HelperPod, pod *corev1.Pod) {
	record.UID, record.NodeName = pod.UID, pod.Spec.NodeName
}

// Remove deletes the pod of a record, as it was seen. It is called until it is seen no more.
func (p Pods) Remove(ctx context.Context, s Seen) error { return kube.Delete(ctx, p.Client, s.Pod) }

// Strays are the pods that were made for this work and that its status does not record, as a cache
// shows them.
func (p Pods) Strays(ctx context.Context, w Work, record *moorv1alpha1.HelperPod) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := p.Client.List(ctx, &all, client.MatchingFields{index.HelperPodByOwner: string(w.Object.GetUID())}); err != nil {
		return nil, fmt.Errorf("list the pods of %s %s: %w", w.Kind, w.Object.GetName(), err)
	}
	return others(all.Items, record), nil
}

// LiveStrays are the same as the API server itself has them.
func (p Pods) LiveStrays(ctx context.Context, w Work, record *moorv1alpha1.HelperPod) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := p.Live.List(ctx, &all, client.MatchingLabels{w.Label: string(w.Object.GetUID())}); err != nil {
		return nil, fmt.Errorf("list the pods of %s %s: %w", w.Kind, w.Object.GetName(), err)
	}
	return others(all.Items, record), nil
}

func others(all []corev1.Pod, record *moorv1alpha1.HelperPod) []corev1.Pod {
	var out []corev1.Pod
	for i := range all {
		if record == nil || record.UID != all[i].UID && (record.UID != "" || client.ObjectKeyFromObject(&all[i]) != Key(record)) {
			out = append(out, all[i])
		}
	}
	return out
}

// Sweep deletes strays, if the object is as it was read: by an old reading, the pod that works now
// would be one.
func (p Pods) Sweep(ctx context.Context, w Work, strays []corev1.Pod) error {
	if err := p.current(ctx, w); err != nil {
		return err
	}
	var errs []error
	for i := range strays {
		errs = append(errs, kube.Delete(ctx, p.Client, &strays[i]))
	}
	return errors.Join(errs...)
}

// Ended counts the end of a pod.
func (p Pods) Ended(phase pods.Phase, record *moorv1alpha1.HelperPod, j Judgement, now time.Time) {
	p.Metrics.ended(phase, j.Verdict, now.Sub(record.Since.Time))
}

// Claims are where templates look up claims. What could not be read for a reason that passes is no
// fault of the template: Err has it.
type Claims struct {
	Reader client.Reader
	Err    error
}

// Claim returns a PersistentVolumeClaim, or an error that says what was looked for.
func (c *Claims) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, c.Reader, client.ObjectKey{Namespace: namespace, Name: name}, claim)
	if err != nil {
		c.Err = errors.Join(c.Err, err)
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("PersistentVolumeClaim %s/%s does not exist", namespace, name)
	}
	return claim, nil
}

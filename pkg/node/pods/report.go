package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// reports tells what helper pods have left in /pav, once for each pod: when it has ended, or, if it
// stages, when it says that it is ready.
type reports struct{ *Agent }

func (a *Agent) setupReports(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("podreport").
		For(&corev1.Pod{}).
		WatchesRawSource(source.Channel(a.ready.events, &handler.EnqueueRequestForObject{})).
		Complete(kube.Retrying(reports{a}))
}

// Reconcile looks at one pod of this node.
func (r reports) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	found, err := kube.Find(ctx, r.cluster.Client, req.NamespacedName, &pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found {
		r.ready.forget(req.NamespacedName)
		return r.leftover(ctx, req.Name)
	}
	h, ours := helperOf(&pod)
	if !ours || pod.Spec.NodeName != r.o.Node {
		return reconcile.Result{}, nil
	}
	if h.kind == kindVolume {
		return r.volume(ctx, h, &pod)
	}
	return r.staging(ctx, h, &pod)
}

// soon is when to look again for a record that the controller is about to write. A node does not watch
// PodVolumes, which are not of nodes.
const soon = time.Second

// volume tells of a pod that works for a PodVolume. Its directory has the name of the pod. A node may
// tell only of a pod that is recorded to be there.
func (r reports) volume(ctx context.Context, h helper, pod *corev1.Pod) (reconcile.Result, error) {
	if !pods.Ended(pod) {
		return reconcile.Result{}, nil
	}
	var v moorv1alpha1.PodVolume
	found, err := kube.Find(ctx, r.cluster.Live, client.ObjectKey{Name: h.name}, &v)
	if err != nil || !found || v.UID != h.uid || !works(v.Status.Pod, pod) || v.Status.Report != nil && v.Status.Report.PodUID == pod.UID {
		return reconcile.Result{}, err
	}
	if v.Status.Pod.NodeName != r.o.Node {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	report, err := r.root.Pod(pod.Name, pavdir.Since{Time: began(pod)})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what pod %s/%s has left: %w", pod.Namespace, pod.Name, err)
	}
	report = r.vouched(report, pod, pod.Name)
	_, err = kube.PatchStatusExact(ctx, r.cluster.Client, &v, func(v *moorv1alpha1.PodVolume) { v.Status.Report = &report })
	r.counted(ctx, h.kind, &report, err)
	return reconcile.Result{}, err
}

// staging tells of a pod that works for a PodStaging.
func (r reports) staging(ctx context.Context, h helper, pod *corev1.Pod) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(pod)
	s, err := r.untold(ctx, h, pod)
	if err != nil || s == nil {
		r.ready.forget(key)
		return reconcile.Result{}, err
	}
	directory := s.Status.Directory
	if !pods.Ended(pod) {
		if unstages(pod) || directory == "" {
			return reconcile.Result{}, nil
		}
		r.ready.follow(directory, key)
		ready, err := r.root.Ready(directory)
		if err != nil || !ready {
			return reconcile.Result{RequeueAfter: r.o.Look}, err
		}
	}
	r.ready.forget(key)
	report, err := r.root.Staged(directory, pavdir.Since{Time: began(pod), Shared: unstages(pod)})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what pod %s/%s has left: %w", pod.Namespace, pod.Name, err)
	}
	report.PodReport, report.BootID = r.vouched(report.PodReport, pod, directory), r.o.Boot
	_, err = kube.PatchStatusExact(ctx, r.cluster.Client, s, func(s *moorv1alpha1.PodStaging) { s.Status.Report = &report })
	r.counted(ctx, h.kind, &report.PodReport, err)
	return reconcile.Result{}, err
}

// untold is the PodStaging that a pod works for, if it has recorded the pod and has no report of it; nil
// otherwise. A report that the cache shows is there.
func (r reports) untold(ctx context.Context, h helper, pod *corev1.Pod) (*moorv1alpha1.PodStaging, error) {
	for _, from := range []client.Reader{r.cluster.Client, r.cluster.Live} {
		var s moorv1alpha1.PodStaging
		found, err := kube.Find(ctx, from, client.ObjectKey{Name: h.name}, &s)
		told := s.Status.Report != nil && s.Status.Report.PodUID == pod.UID
		switch {
		case err != nil, told && s.UID == h.uid:
			return nil, err
		case from == r.cluster.Live && found && s.UID == h.uid && works(s.Status.Pod, pod):
			return &s, nil
		}
	}
	return nil, nil
}

// works reports whether a pod is the one that an object has recorded.
func works(is *moorv1alpha1.HelperPod, pod *corev1.Pod) bool {
	return is != nil && is.Namespace == pod.Namespace && is.Name == pod.Name && (is.UID == "" || is.UID == pod.UID)
}

// began is from when on what is written is the pod's: the kubelet of this node has noted it, by the clock
// by which files get their times.
func began(pod *corev1.Pod) time.Time { return ptr.Deref(pod.Status.StartTime, metav1.Time{}).Time }

// vouched is a report with its pod. If that has another directory as /pav than was read, nothing of the
// report is its own.
func (r reports) vouched(report moorv1alpha1.PodReport, pod *corev1.Pod, directory string) moorv1alpha1.PodReport {
	if path := r.root.Path(directory); !has(pod, path) {
		report = moorv1alpha1.PodReport{Problem: fmt.Sprintf("the pod has not %s of the node as /pav: both modes of pod-provisioner need the same --root", path)}
	}
	report.PodUID = pod.UID
	return report
}

func (r reports) counted(ctx context.Context, kind string, report *moorv1alpha1.PodReport, err error) {
	if err != nil {
		return
	}
	result := "read"
	if report.Problem != "" {
		result = "problem"
	}
	r.counts.reports.WithLabelValues(kind, result).Inc()
	ctrl.LoggerFrom(ctx).Info("told what a helper pod has left", "for", kind, "ready", report.Ready, "problem", report.Problem)
}

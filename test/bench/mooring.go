package main

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
)

const (
	// moored is the name of the workload whose pods write.
	moored = "moored"
	// journalFile is where a pod writes.
	journalFile = "/data/journal"
	// failoverClass is of deploy/examples/storage-failover.yaml: one replica.
	failoverClass = "snap-failover"
)

// writeJournal appends a line and fsyncs it, and prints it once that is done:
// what is in the pod's log was acknowledged. Each line names its pod.
const writeJournal = `trap 'exit 0' TERM
i=0
while :; do
  echo "$POD-$i" | dd of=` + journalFile + ` oflag=append conv=notrunc,fsync 2>/dev/null && echo "$POD-$i"
  i=$((i+1))
  usleep PAUSE
done`

// Kinds of workload.
const (
	statefulSet = "statefulset"
	deployment  = "deployment"
)

// mooring is a workload whose pods write journals to a volume each.
type mooring struct {
	kind, class string
	// pods is how many, each with a volume; a Deployment has one.
	pods int
	// pause between two lines, in microseconds.
	pause int
}

func (m mooring) template(claim string) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": moored}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(10)),
			Containers: []corev1.Container{{
				Name: "main", Image: kit.Image,
				Command:      []string{"sh", "-c", strings.Replace(writeJournal, "PAUSE", fmt.Sprint(m.pause), 1)},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				Env: []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
				}}},
			}},
		},
	}
	if claim != "" {
		out.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return out
}

// objects make the workload.
func (m mooring) objects() []client.Object {
	labels := map[string]string{"app": moored}
	pvc := claim("data")
	pvc.Spec.StorageClassName = &m.class
	if m.kind == deployment {
		return []client.Object{pvc, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: moored, Namespace: namespace},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: m.template(pvc.Name),
				// Two pods must not wait for one another's volume.
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			},
		}}
	}
	pvc.Namespace = ""
	return []client.Object{&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: moored, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: moored, Replicas: ptr.To(int32(m.pods)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			PodManagementPolicy: appsv1.ParallelPodManagement, Template: m.template(""),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*pvc},
		},
	}}
}

// moor makes the namespace and the workload and returns when every pod has
// written.
func (b *bench) moor(ctx context.Context, m mooring) (*harbour, error) {
	if err := b.makeNamespace(ctx); err != nil {
		return nil, err
	}
	for _, o := range m.objects() {
		if err := b.clients.Host.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
		}
	}
	h := &harbour{bench: b, mooring: m, berths: map[string]*berth{}}
	watching, stop := context.WithCancel(ctx)
	h.stop = stop
	if err := h.settle(ctx, nil); err != nil {
		h.leave()
		return nil, err
	}
	for _, berth := range h.berths {
		if err := h.witness(watching, berth); err != nil {
			h.leave()
			return nil, err
		}
	}
	return h, nil
}

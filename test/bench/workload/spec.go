package workload

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
)

const (
	// name is that of the StatefulSet or Deployment, and the app of its pods.
	name = "writer"
	// journalFile is where a pod writes.
	journalFile = "/data/journal"
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
	StatefulSet = "statefulset"
	Deployment  = "deployment"
)

// Spec says which pods write.
type Spec struct {
	// Kind is StatefulSet or Deployment, Class the StorageClass.
	Kind, Class string
	// Pods is how many, each with a volume; a Deployment has one.
	Pods int
	// PauseMicros is the time between two lines, in microseconds.
	PauseMicros int
}

func (s Spec) template(claim string) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(10)),
			Containers: []corev1.Container{{
				Name: "main", Image: kit.Image,
				Command:      []string{"sh", "-c", strings.Replace(writeJournal, "PAUSE", fmt.Sprint(s.PauseMicros), 1)},
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
func (s Spec) objects(namespace string) []client.Object {
	labels := map[string]string{"app": name}
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &s.Class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}
	if s.Kind == Deployment {
		return []client.Object{pvc, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: s.template(pvc.Name),
				// Two pods must not wait for one another's volume.
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			},
		}}
	}
	pvc.Namespace = ""
	return []client.Object{&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Replicas: ptr.To(int32(s.Pods)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			PodManagementPolicy: appsv1.ParallelPodManagement, Template: s.template(""),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*pvc},
		},
	}}
}

package podvolume

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// meta is metadata as a cache keeps it, and whole the same as it comes.
func meta() (kept, whole metav1.ObjectMeta) {
	at := metav1.NewTime(time.Unix(1000, 0))
	kept = metav1.ObjectMeta{
		Namespace: "n", Name: "o", UID: "u", ResourceVersion: "7", CreationTimestamp: at, DeletionTimestamp: &at,
		DeletionGracePeriodSeconds: ptr.To[int64](30), Finalizers: []string{"f"},
	}
	whole = *kept.DeepCopy()
	whole.GenerateName, whole.Generation = "o-", 3
	whole.Annotations, whole.ManagedFields = map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{Manager: "m"}}
	whole.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	return kept, whole
}

// TestSlimPods: of a pod stays where it runs and what it uses, and for the replicas
// what decides where it can run; nothing else.
func TestSlimPods(t *testing.T) {
	kept, all := meta()
	claim := corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}}
	whole := &corev1.Pod{ObjectMeta: all}
	whole.Labels = map[string]string{"app": "db"}
	whole.Spec = corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "main"}}, SecurityContext: &corev1.PodSecurityContext{}, SchedulerName: "default-scheduler",
		Volumes: []corev1.Volume{
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			claim,
			{Name: "e", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}},
		},
		NodeSelector: map[string]string{"disk": "fast"}, Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}},
		Tolerations: []corev1.Toleration{{Key: "t"}}, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
	}
	whole.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady}}}

	user := &corev1.Pod{ObjectMeta: kept, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	user.Spec.NodeName = "n1"
	user.Spec.Volumes = []corev1.Volume{claim, {Name: "e", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	placed := user.DeepCopy()
	placed.Labels, placed.Spec.NodeSelector, placed.Spec.Affinity = whole.Labels, whole.Spec.NodeSelector, whole.Spec.Affinity
	placed.Spec.Tolerations, placed.Spec.TopologySpreadConstraints = whole.Spec.Tolerations, whole.Spec.TopologySpreadConstraints

	for name, c := range map[string]struct {
		slim func(any) (any, error)
		want *corev1.Pod
	}{"user": {SlimUser, user}, "placed": {SlimPod, placed}} {
		got, err := c.slim(whole.DeepCopy())
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
		if d := cmp.Diff(Claims(whole), Claims(got.(*corev1.Pod))); d != "" {
			t.Errorf("%s: its claims (-want +got):\n%s", name, d)
		}
		if other, err := c.slim(&corev1.Node{}); err != nil || other.(*corev1.Node) == nil {
			t.Errorf("%s: another kind became %v, %v", name, other, err)
		}
	}
	if got, _ := SlimUser(&corev1.Pod{Spec: corev1.PodSpec{Volumes: whole.Spec.Volumes[:1]}}); got.(*corev1.Pod).Spec.Volumes != nil {
		t.Error("a pod without claims has volumes")
	}
}

// TestSlimClaim: of a claim stays what it is bound to and how far it has grown, and
// nothing else.
func TestSlimClaim(t *testing.T) {
	kept, all := meta()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	want := &corev1.PersistentVolumeClaim{ObjectMeta: kept}
	want.Spec.VolumeName, want.Spec.Resources.Requests = "pv", size
	want.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, AllocatedResources: size,
		Conditions:                []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending}},
		AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
	}
	whole := want.DeepCopy()
	whole.ObjectMeta = all
	whole.Labels = map[string]string{"app": "db"}
	whole.Spec.StorageClassName, whole.Spec.AccessModes = ptr.To("gold"), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	whole.Spec.Resources.Limits, whole.Status.Capacity = size, size
	got, err := SlimClaim(whole)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if other, err := SlimClaim(&corev1.Node{}); err != nil || other.(*corev1.Node) == nil {
		t.Errorf("another kind became %v, %v", other, err)
	}
}

// TestSlimPersistentVolume: what ties a volume to a claim stays, and nothing else.
func TestSlimPersistentVolume(t *testing.T) {
	claim := &corev1.ObjectReference{Namespace: "n", Name: "claim", UID: "c"}
	kept := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", ResourceVersion: "7", Finalizers: []string{"f"}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: claim, PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "vol"},
		}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	whole := kept.DeepCopy()
	whole.Annotations, whole.ManagedFields = map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{Manager: "m"}}
	whole.Spec.ClaimRef.Kind, whole.Spec.ClaimRef.ResourceVersion = "PersistentVolumeClaim", "7"
	whole.Spec.CSI.VolumeAttributes, whole.Spec.MountOptions = map[string]string{"k": "v"}, []string{"ro"}
	whole.Status.Message = "long"
	got, err := SlimPersistentVolume(whole)
	if d := cmp.Diff(kept, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if got, err := SlimPersistentVolume(&corev1.PersistentVolume{}); err != nil || got.(*corev1.PersistentVolume).Spec.CSI != nil {
		t.Errorf("one that is not of CSI became %v, %v", got, err)
	}
}

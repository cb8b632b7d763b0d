package dpf

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The reasons of problems.
const (
	reasonVendorVolume    = "VendorVolumeUnusable"
	reasonReplicasMissing = "ReplicasMissing"
	reasonNotShown        = "DeviceNotShown"
	reasonHostDead        = "HostDead"
	reasonDPUSilent       = "DPUSilent"
	reasonSNAPDown        = "SNAPDown"
)

// attachGrace is how long a device may be on its way to its host before that is
// a problem.
const attachGrace = time.Minute

// use is an attachment, and what is known of its node; nil if nothing is.
type use struct {
	attachment *storagev1alpha1.DPUVolumeAttachment
	node       *moorv1alpha1.DPUStorageNode
}

func byNode(a, b use) int {
	return cmp.Compare(a.attachment.Spec.DPUNodeName, b.attachment.Spec.DPUNodeName)
}

// diagnose says what is wrong with a volume that its vendor has made, the
// gravest first.
func diagnose(v *storagev1alpha1.DPUVolume, uses []use, now time.Time) (out []provisioner.Problem) {
	add := func(s provisioner.Severity, reason, format string, args ...any) {
		out = append(out, provisioner.Problem{Severity: s, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if c := no(v.Status.Conditions, storagev1alpha1.ConditionHealthy); c != nil {
		add(provisioner.Inaccessible, reasonVendorVolume, "%s", c.Message)
	}
	for _, u := range uses {
		if late(u.attachment, now) {
			add(provisioner.Inaccessible, reasonNotShown, "node %s does not see the device: %s",
				u.attachment.Spec.DPUNodeName, cmp.Or(u.attachment.Status.Message, "is snap-host-controller running?"))
		}
	}
	for _, u := range uses {
		if s, reason, words := ails(u.node); reason != "" {
			add(s, reason, "node %s, which uses the volume: %s", u.node.Name, words)
		}
	}
	if r := v.Status.Replicas; r != nil && r.Missing > 0 && r.Message != "" {
		add(provisioner.Degraded, reasonReplicasMissing, "%d of %d replicas are missing: %s", r.Missing, r.Wanted, r.Message)
	}
	return out
}

// late reports whether the host should have seen the device by now.
func late(a *storagev1alpha1.DPUVolumeAttachment, now time.Time) bool {
	since := a.CreationTimestamp.Time
	if c := no(a.Status.Conditions, storagev1alpha1.ConditionDPUAttached); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return !shown(a) && now.Sub(since) > attachGrace
}

// ails says what is wrong with a node that uses a volume: the first of what
// keeps the host from its data, then of what keeps it from being looked after.
func ails(n *moorv1alpha1.DPUStorageNode) (s provisioner.Severity, reason, words string) {
	if n == nil {
		return "", "", ""
	}
	if c := no(n.Status.Conditions, moorv1alpha1.ConditionHostAlive); c != nil {
		return provisioner.Inaccessible, reasonHostDead, c.Message
	}
	if c := no(n.Status.Conditions, moorv1alpha1.ConditionDPUAlive); c != nil {
		return provisioner.Degraded, reasonDPUSilent, c.Message
	}
	if n.Status.DPU != nil && !n.Status.DPU.SNAPReady {
		return provisioner.Inaccessible, reasonSNAPDown, "SNAP does not answer on DPU " + n.Spec.DPUName
	}
	return "", "", ""
}

// no is the condition of that type if it is False.
func no(conditions []metav1.Condition, kind string) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

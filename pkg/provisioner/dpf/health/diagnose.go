package health

import (
	"cmp"
	"fmt"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// The reasons of problems.
const (
	reasonVendorVolume    = "VendorVolumeUnusable"
	reasonReplicasMissing = "ReplicasMissing"
	reasonNotShown        = "DeviceNotShown"
	reasonMountDead       = storagev1alpha1.ReasonMountDead
	reasonPathLost        = storagev1alpha1.ReasonPathLost
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
	if c := request.False(v.Status.Conditions, storagev1alpha1.ConditionHealthy); c != nil {
		add(provisioner.Inaccessible, reasonVendorVolume, "%s", c.Message)
	}
	for _, u := range uses {
		if overdue(u.attachment, now) {
			add(provisioner.Inaccessible, reasonNotShown, "node %s does not see the device: %s",
				u.attachment.Spec.DPUNodeName, cmp.Or(u.attachment.Status.Message, "is snap-host-controller running?"))
		}
	}
	for _, u := range uses {
		if c := request.False(u.attachment.Status.Conditions, storagev1alpha1.ConditionMountHealthy); c != nil {
			add(provisioner.Inaccessible, reasonMountDead, "on node %s: %s", u.attachment.Spec.DPUNodeName, c.Message)
		}
	}
	for _, u := range uses {
		if c := request.False(u.attachment.Status.Conditions, storagev1alpha1.ConditionPathHealthy); c != nil {
			add(provisioner.Inaccessible, reasonPathLost, "node %s does not reach the storage: %s", u.attachment.Spec.DPUNodeName, c.Message)
		}
	}
	for _, u := range uses {
		if s, reason, words := problemOf(u.node); reason != "" {
			add(s, reason, "node %s, which uses the volume: %s", u.node.Name, words)
		}
	}
	if r := v.Status.Replicas; r != nil && r.Missing > 0 && r.Message != "" {
		add(provisioner.Degraded, reasonReplicasMissing, "%d of %d replicas are missing: %s", r.Missing, r.Wanted, r.Message)
	}
	return out
}

// overdue reports whether the host should have seen the device by now.
func overdue(a *storagev1alpha1.DPUVolumeAttachment, now time.Time) bool {
	since := a.CreationTimestamp.Time
	if c := request.False(a.Status.Conditions, storagev1alpha1.ConditionDPUAttached); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return !attachment.Shown(a) && now.Sub(since) > attachGrace
}

// problemOf says what is wrong with a node that uses a volume: the first of what
// keeps the host from its data, then of what keeps it from being looked after.
func problemOf(n *moorv1alpha1.DPUStorageNode) (s provisioner.Severity, reason, words string) {
	if n == nil {
		return "", "", ""
	}
	if c := request.False(n.Status.Conditions, moorv1alpha1.ConditionHostAlive); c != nil {
		return provisioner.Inaccessible, reasonHostDead, c.Message
	}
	if c := request.False(n.Status.Conditions, moorv1alpha1.ConditionDPUAlive); c != nil {
		return provisioner.Degraded, reasonDPUSilent, c.Message
	}
	if n.Status.DPU != nil && !n.Status.DPU.SNAPReady {
		return provisioner.Inaccessible, reasonSNAPDown, "SNAP does not answer on DPU " + n.Spec.DPUName
	}
	return "", "", ""
}

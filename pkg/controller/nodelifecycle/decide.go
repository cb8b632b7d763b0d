package nodelifecycle

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// conditions are what the observation says. The messages hold no times, so that they
// change only when the state does. stays is what keeps the object of a removed
// Node; nil if the Node is there. What stands in status stays while the observer is
// too young to say anything: after a start of this process nothing is known of hosts
// that beat all the time.
func conditions(s nodehealth.Observation, status moorv1alpha1.DPUStorageNodeStatus, stays []string) []metav1.Condition {
	s.Host, s.DPU = unlessUnheard(s.Host, s.HostUnheard), unlessUnheard(s.DPU, s.DPUUnheard)
	host, hostStands := stand(s.Young && (s.HostUnheard || s.ZeroTrust && s.DPUUnheard), hostAlive(s), status)
	dpu, dpuStands := stand(s.Young && s.DPUUnheard, dpuAlive(s), status)
	ready := readiness(s, status, host, dpu)
	switch {
	case len(stays) > 0:
		ready = readyIs(metav1.ConditionFalse, moorv1alpha1.ReasonNodeRemoved, staysMessage(stays))
	case ready.Status == metav1.ConditionTrue && (hostStands || dpuStands) && !meta.IsStatusConditionTrue(status.Conditions, moorv1alpha1.ConditionReady):
		ready = readyIs(metav1.ConditionUnknown, moorv1alpha1.ReasonNotKnown, "not all heartbeats were heard since snap-host-controller started")
	}
	return append([]metav1.Condition{host, dpu, ready}, paths(dpu, status)...)
}

// paths is what the DPU says of its ways to the storage, once one was lost. What a DPU that is not heard
// has said last is not known to hold.
func paths(dpu metav1.Condition, status moorv1alpha1.DPUStorageNodeStatus) []metav1.Condition {
	lost := status.LostPaths()
	c := metav1.Condition{Type: moorv1alpha1.ConditionPathHealthy}
	switch {
	case len(lost) == 0 && meta.FindStatusCondition(status.Conditions, c.Type) == nil:
		return nil
	case dpu.Status != metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, moorv1alpha1.ReasonNotKnown, dpu.Message
	case len(lost) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, moorv1alpha1.ReasonSuccess
	default:
		c.Status, c.Reason = metav1.ConditionFalse, moorv1alpha1.ReasonPathLost
		c.Message = "the DPU does not reach the storage of volume " + lostMessage(lost)
		if status.DPU.AllPathsLost {
			c.Reason, c.Message = moorv1alpha1.ReasonAllPathsLost, c.Message+"; it reaches the storage of no volume"
		}
	}
	return []metav1.Condition{c}
}

// mostNamed is how many volumes a message names.
const mostNamed = 10

func lostMessage(lost []moorv1alpha1.LostPath) string {
	var out []string
	for _, l := range lost[:min(len(lost), mostNamed)] {
		out = append(out, fmt.Sprintf("%s (%s)", l.Volume, l.Message))
	}
	return strings.Join(out, ", ") + more(len(lost))
}

// more says how many of so many are not named.
func more(n int) string {
	if n <= mostNamed {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-mostNamed)
}

// readiness is what host, DPU and SNAP say of Ready.
func readiness(s nodehealth.Observation, status moorv1alpha1.DPUStorageNodeStatus, host, dpu metav1.Condition) metav1.Condition {
	switch {
	case host.Status == metav1.ConditionFalse:
		return readyIs(metav1.ConditionFalse, moorv1alpha1.ReasonNotReady, host.Message)
	case dpu.Status == metav1.ConditionFalse:
		return readyIs(metav1.ConditionFalse, moorv1alpha1.ReasonNotReady, dpu.Message)
	case status.DPU != nil && !status.DPU.SNAPReady:
		return readyIs(metav1.ConditionFalse, moorv1alpha1.ReasonNotReady, "SNAP does not answer on the DPU")
	case host.Status == metav1.ConditionUnknown && !s.ZeroTrust:
		return readyIs(metav1.ConditionUnknown, moorv1alpha1.ReasonNotKnown, host.Message)
	case dpu.Status == metav1.ConditionUnknown:
		return readyIs(metav1.ConditionUnknown, moorv1alpha1.ReasonNotKnown, dpu.Message)
	}
	return readyIs(metav1.ConditionTrue, moorv1alpha1.ReasonReady, "")
}

func readyIs(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: moorv1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}
}

// unlessUnheard is the heartbeat, but for one that is late and was never heard: it is
// no sign of life.
func unlessUnheard(b nodehealth.Beat, unheard bool) nodehealth.Beat {
	if unheard && b == nodehealth.Quiet {
		return nodehealth.Unknown
	}
	return b
}

// stand is the condition as it stands, if all that is known against it is that the
// observer is young; it reports whether it is.
func stand(young bool, c metav1.Condition, status moorv1alpha1.DPUStorageNodeStatus) (metav1.Condition, bool) {
	if standing := meta.FindStatusCondition(status.Conditions, c.Type); young && c.Status == metav1.ConditionUnknown && standing != nil {
		return *standing, standing.Status != metav1.ConditionUnknown
	}
	return c, false
}

func hostAlive(s nodehealth.Observation) metav1.Condition {
	if s.DPU.Heard() && s.HostSeen == nodehealth.SeenDead && s.Host != nodehealth.Fresh {
		return metav1.Condition{
			Type: moorv1alpha1.ConditionHostAlive, Status: metav1.ConditionFalse, Reason: moorv1alpha1.ReasonSeenDead,
			Message: fmt.Sprintf("its DPU sees the host dead: %s", s.Message),
		}
	}
	if s.ZeroTrust {
		return seenAlive(s)
	}
	c := beat(moorv1alpha1.ConditionHostAlive, s.Host, "snap-csi-plugin on the host")
	if s.Host == nodehealth.Fresh && s.HostSeen == nodehealth.SeenDead {
		c.Message = fmt.Sprintf("it beats, though its DPU sees it dead: %s", s.Message)
	}
	return c
}

// seenAlive is for a host that sends no heartbeat: its DPU alone can tell.
func seenAlive(s nodehealth.Observation) metav1.Condition {
	if s.DPU.Heard() && s.HostSeen == nodehealth.SeenAlive {
		return metav1.Condition{Type: moorv1alpha1.ConditionHostAlive, Status: metav1.ConditionTrue, Reason: moorv1alpha1.ReasonSeenAlive}
	}
	return metav1.Condition{
		Type: moorv1alpha1.ConditionHostAlive, Status: metav1.ConditionUnknown, Reason: moorv1alpha1.ReasonNotKnown,
		Message: "no heartbeat is written for a ZeroTrust host, and its DPU does not say that it sees it",
	}
}

func dpuAlive(s nodehealth.Observation) metav1.Condition {
	return beat(moorv1alpha1.ConditionDPUAlive, s.DPU, "snap-node-driver on the DPU")
}

func beat(kind string, b nodehealth.Beat, who string) metav1.Condition {
	switch b {
	case nodehealth.Fresh, nodehealth.Quiet:
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: moorv1alpha1.ReasonBeats}
	case nodehealth.Stale:
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: moorv1alpha1.ReasonSilent,
			Message: "the heartbeat of " + who + " has stopped",
		}
	}
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionUnknown, Reason: moorv1alpha1.ReasonNotKnown,
		Message: "the heartbeat of " + who + " is not known for long enough",
	}
}

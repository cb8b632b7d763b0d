package staging

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// surroundings are what a staging is about, as it is now; what is not there is nil.
type surroundings struct {
	pv    *corev1.PersistentVolume
	claim *corev1.PersistentVolumeClaim
	node  *corev1.Node
	// volume is the PodVolume of pv; nil: a person has made that.
	volume *moorv1alpha1.PodVolume
}

// about says what is missing for the templates; empty if nothing is.
func (a surroundings) about(p *moorv1alpha1.PodStaging) string {
	switch {
	case a.pv == nil:
		return fmt.Sprintf("PersistentVolume %s does not exist", p.Spec.VolumeName)
	case a.pv.Spec.CSI == nil || a.pv.Spec.CSI.Driver != p.Spec.ProvisionerName:
		return fmt.Sprintf("PersistentVolume %s is none of provisioner %s", p.Spec.VolumeName, p.Spec.ProvisionerName)
	case a.claim == nil:
		return fmt.Sprintf("PersistentVolume %s is not bound to a claim that is there", p.Spec.VolumeName)
	case a.node == nil:
		return fmt.Sprintf("node %s does not exist", p.Spec.NodeName)
	}
	return ""
}

// variables are what the templates of a staging see.
func (a surroundings) variables(p *moorv1alpha1.PodStaging) (pods.Context, error) {
	out, err := pods.OfStaging(a.pv, a.claim, a.node, p.Spec.ReadOnly)
	if u := p.Spec.User; err == nil && !u.IsPod() {
		out = out.For(pods.Attachment{Namespace: u.Namespace, Name: u.Name, UID: u.UID})
	}
	return out, err
}

// refuses says why a volume may not be staged; empty if it may. others are the other stagings of
// the volume that have begun.
func refuses(p *moorv1alpha1.PodStaging, a surroundings, by compiled.Found, others []moorv1alpha1.PodStaging) string {
	if missing := a.about(p); missing != "" {
		return missing
	}
	switch {
	case by.Provisioner == nil || by.Deleting:
		return by.Words
	case a.claim.Namespace != p.Spec.User.Namespace:
		return fmt.Sprintf("PersistentVolume %s is bound to a claim in namespace %s, which %s is not in", p.Spec.VolumeName, a.claim.Namespace, p.Spec.User)
	case a.volume != nil && (!a.volume.DeletionTimestamp.IsZero() || a.volume.Status.Phase != moorv1alpha1.PodVolumeCreated):
		return fmt.Sprintf("volume %s is not there: its PodVolume is being removed", p.Spec.VolumeName)
	case a.volume == nil && !by.Provisioner.Provides(pavv1alpha1.Static):
		return fmt.Sprintf("provisioner %s has no volumes that are made by hand, such as %s: its provisioningModes are without Static", p.Spec.ProvisionerName, p.Spec.VolumeName)
	case !by.Provisioner.StagesOn(a.node.Labels):
		return fmt.Sprintf("provisioner %s does not stage volumes on node %s, which has not the labels that its nodeSelector asks for", p.Spec.ProvisionerName, p.Spec.NodeName)
	}
	return excludes(p, a.pv.Spec.AccessModes, by.Concurrent, others)
}

// excludes holds a staging against the others of the volume, by the volume's access modes.
// DPUs may have it at once if its pods are concurrent: which of them shows it to its host is
// decided by the WriterClaim.
func excludes(p *moorv1alpha1.PodStaging, modes []corev1.PersistentVolumeAccessMode, concurrent bool, others []moorv1alpha1.PodStaging) string {
	if slices.Contains(modes, corev1.ReadWriteMany) {
		return ""
	}
	for i := range others {
		if concurrent && !p.Spec.User.IsPod() && !others[i].Spec.User.IsPod() {
			continue
		}
		o := &others[i].Spec
		readers := p.Spec.ReadOnly && o.ReadOnly && slices.Contains(modes, corev1.ReadOnlyMany)
		switch {
		case slices.Contains(modes, corev1.ReadWriteOncePod) && o.User.UID != p.Spec.User.UID:
			return fmt.Sprintf("volume %s is ReadWriteOncePod, and %s on node %s has it", p.Spec.VolumeName, o.User, o.NodeName)
		case slices.Contains(modes, corev1.ReadWriteOnce) && o.NodeName != p.Spec.NodeName && !readers:
			return fmt.Sprintf("volume %s is ReadWriteOnce, and %s has it on node %s", p.Spec.VolumeName, o.User, o.NodeName)
		}
	}
	return ""
}

// holds reports whether a staging has its volume, or may have.
func holds(p *moorv1alpha1.PodStaging) bool {
	switch p.Status.Phase {
	case "", isFailed, isUnstaged:
		return false
	}
	return true
}

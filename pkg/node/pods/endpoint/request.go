package endpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// What the kubelet says in a volume's context of the pod that uses it, as the CSIDriver asks
// (podInfoOnMount).
const (
	podName      = "csi.storage.k8s.io/pod.name"
	podNamespace = "csi.storage.k8s.io/pod.namespace"
	podUID       = "csi.storage.k8s.io/pod.uid"
	ephemeral    = "csi.storage.k8s.io/ephemeral"
)

// Name is that of the PodStaging of a volume on a node for a pod.
func Name(driver, handle, node string, pod types.UID) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{driver, handle, node, string(pod)}))
	return pods.StagingName(hex.EncodeToString(sum[:idBytes]))
}

// idBytes is how many bytes of the hash are in the name: with them the names of the pods have 63
// characters at most, and no two volumes of a cluster have one name.
const idBytes = 16

// request is a NodePublishVolumeRequest that was checked.
type request struct {
	handle, target string
	user           moorv1alpha1.StagingUser
	mode           corev1.PersistentVolumeMode
	readOnly       bool
	// alone is whether no other pod may use the volume.
	alone bool
}

// parse reads a request. What is wrong with it is told by its field.
func parse(req *csispec.NodePublishVolumeRequest) (request, error) {
	about := req.GetVolumeContext()
	out := request{
		handle: req.GetVolumeId(), target: req.GetTargetPath(),
		user: moorv1alpha1.StagingUser{Namespace: about[podNamespace], Name: about[podName], UID: types.UID(about[podUID])},
	}
	if err := csiserver.Require("volume id", out.handle, "target path", out.target); err != nil {
		return request{}, err
	}
	if !filepath.IsAbs(out.target) {
		return request{}, csiserver.Invalid("target path %q is not absolute", out.target)
	}
	c, err := capability(req.GetVolumeCapability())
	if err != nil {
		return request{}, err
	}
	if out.user.Namespace == "" || out.user.Name == "" || out.user.UID == "" {
		return request{}, csiserver.Invalid("the volume context does not say which pod uses the volume: the CSIDriver of the provisioner has to have podInfoOnMount: true")
	}
	if about[ephemeral] == "true" {
		return request{}, csiserver.Invalid("the volume is written in the pod itself (csi.driver): volumes of pods are used by a PersistentVolumeClaim")
	}
	out.mode, out.readOnly = corev1.PersistentVolumeFilesystem, c.ReadOnly || req.GetReadonly()
	if c.Mode == provisioner.Block {
		out.mode = corev1.PersistentVolumeBlock
	}
	out.alone = c.Access == provisioner.ReadWriteOncePod
	return out, nil
}

// capability refuses what a staging pod would have to know of, and does not.
func capability(c *csispec.VolumeCapability) (csiserver.Capability, error) {
	if m := c.GetMount(); m.GetFsType() != "" || len(m.GetMountFlags()) > 0 {
		return csiserver.Capability{}, csiserver.Invalid("fsType %q and mount options %q: the staging pod decides about these; remove them from the StorageClass or PersistentVolume", m.GetFsType(), m.GetMountFlags())
	}
	return csiserver.ParseCapability(c)
}

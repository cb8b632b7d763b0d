package pods

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ParameterFSType is the key of a StorageClass by which a file system is asked for.
const ParameterFSType = "csi.storage.k8s.io/fstype"

// Request is what is asked of a provisioner.
type Request struct {
	Mode        corev1.PersistentVolumeMode
	AccessModes []corev1.PersistentVolumeAccessMode
	// MinBytes is the least size, and MaxBytes the largest; nil: no limit.
	MinBytes int64
	MaxBytes *int64
	// FSType and MountOptions are refused if they are set: what a pod stages is a directory, in
	// which there is nothing to make or to mount.
	FSType       string
	MountOptions []string
}

// Context is what templates see.
type Context struct{ variables map[string]any }

// DefaultHandle is the handle of a volume for which nothing else gives one.
func DefaultHandle(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// OfClaim is a request for a dynamic volume, and what the templates of its validation, creation and
// deletion see. class is the StorageClass as it was when the volume was asked for.
func OfClaim(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (Request, Context, error) {
	r := Request{
		Mode: modeOf(claim.Spec.VolumeMode), AccessModes: claim.Spec.AccessModes, FSType: class.Parameters[ParameterFSType], MountOptions: class.MountOptions,
	}
	request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	r.MinBytes = request.Value()
	if limit, ok := claim.Spec.Resources.Limits[corev1.ResourceStorage]; ok {
		bytes := limit.Value()
		r.MaxBytes = &bytes
	}
	c := Context{r.variables(class.Parameters)}
	c.variables["defaultHandle"] = DefaultHandle(claim)
	return r, c, c.show(shown{"pvc", claim, "v1", "PersistentVolumeClaim"}, shown{"sc", class, "storage.k8s.io/v1", "StorageClass"})
}

// OfVolume is what is asked of a provisioner by a PersistentVolume that a person made, and what the
// templates of its validation see.
func OfVolume(pv *corev1.PersistentVolume) (Request, Context, error) {
	if pv.Spec.CSI == nil {
		return Request{}, Context{}, fmt.Errorf("PersistentVolume %s is none of a CSI driver", pv.Name)
	}
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	bytes := capacity.Value()
	r := Request{
		Mode: modeOf(pv.Spec.VolumeMode), AccessModes: pv.Spec.AccessModes, MinBytes: bytes, MaxBytes: &bytes,
		FSType: pv.Spec.CSI.FSType, MountOptions: pv.Spec.MountOptions,
	}
	c := Context{r.variables(pv.Spec.CSI.VolumeAttributes)}
	c.variables["handle"] = pv.Spec.CSI.VolumeHandle
	return r, c, c.show(shown{"pv", pv, "v1", "PersistentVolume"})
}

// ClaimOf is the claim of a PersistentVolume as far as that knows it, for templates that are evaluated when it is
// gone; nil if there was none.
func ClaimOf(pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	out := &corev1.PersistentVolumeClaim{}
	out.Namespace, out.Name, out.UID = ref.Namespace, ref.Name, ref.UID
	out.Spec.AccessModes, out.Spec.VolumeName = pv.Spec.AccessModes, pv.Name
	return out
}

// OfStaging is what the templates of staging, unstaging and revocation see: the volume, the claim by which it
// is used, the node, and whether the pod only reads.
func OfStaging(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, node *corev1.Node, readOnly bool) (Context, error) {
	if pv.Spec.CSI == nil {
		return Context{}, fmt.Errorf("PersistentVolume %s is none of a CSI driver", pv.Name)
	}
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	c := Context{map[string]any{
		"volumeMode": string(modeOf(pv.Spec.VolumeMode)), "accessModes": texts(claim.Spec.AccessModes), "capacity": capacity.Value(),
		"params": parameters(pv.Spec.CSI.VolumeAttributes), "handle": pv.Spec.CSI.VolumeHandle, "readOnly": readOnly, "attachment": nil,
	}}
	return c, c.show(shown{"pvc", claim, "v1", "PersistentVolumeClaim"}, shown{"pv", pv, "v1", "PersistentVolume"}, shown{"node", node, "v1", "Node"})
}

// Attachment is the VolumeAttachment for which a DPU has a volume.
type Attachment struct {
	Namespace, Name string
	UID             types.UID
	// Epoch of the right to write that is taken; 0 where none is.
	Epoch int64
}

// For is a context of staging, unstaging or revocation with the attachment that it is for, which has a UID of its
// own each time that a DPU gets the volume.
func (c Context) For(a Attachment) Context {
	shown := map[string]any{"namespace": a.Namespace, "name": a.Name, "uid": string(a.UID)}
	if a.Epoch > 0 {
		shown["epoch"] = a.Epoch
	}
	out := Context{maps.Clone(c.variables)}
	out.variables["attachment"] = shown
	return out
}

func (r Request) variables(given map[string]string) map[string]any {
	out := map[string]any{
		"requestedVolumeMode": string(r.Mode), "requestedAccessModes": texts(r.AccessModes), "requestedMinCapacity": r.MinBytes,
		"requestedMaxCapacity": nil, "params": parameters(given),
	}
	if r.MaxBytes != nil {
		out["requestedMaxCapacity"] = *r.MaxBytes
	}
	return out
}

func modeOf(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

func texts[S ~string](all []S) []any {
	out := make([]any, len(all))
	for i, s := range all {
		out[i] = string(s)
	}
	return out
}

func parameters(given map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range given {
		out[k] = v
	}
	return out
}

// shown is an object that templates see under a name, as the API shows it.
type shown struct {
	name          string
	object        any
	version, kind string
}

func (c Context) show(all ...shown) error {
	for _, s := range all {
		content, err := asJSON(s.object, s.version, s.kind)
		if err != nil {
			return err
		}
		c.variables[s.name] = content
	}
	return nil
}

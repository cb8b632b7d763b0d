// Package kubelet knows where a kubelet shows the volumes of CSI drivers to pods, and what it
// keeps of them there: pkg/volume/csi of Kubernetes 1.36 (csi_mounter.go, csi_block.go,
// csi_util.go). It reads and writes nothing.
package kubelet

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	pods     = "pods"
	mounts   = "volumes/kubernetes.io~csi"
	mount    = "mount"
	devices  = "plugins/kubernetes.io/csi/volumeDevices"
	publish  = "publish"
	dataFile = "vol_data.json"
)

// Target is a place where a kubelet wants a volume for a pod.
type Target struct {
	// Root is the kubelet's directory.
	Root string
	// Volume is the name of the PersistentVolume; of an inline volume that of the pod's.
	Volume string
	Pod    types.UID
	// Block: it is shown as a device.
	Block bool
}

// Path of the target (GetTargetPath, getPublishPath).
func (t Target) Path() string {
	if t.Block {
		return filepath.Join(t.Root, devices, publish, t.Volume, string(t.Pod))
	}
	return filepath.Join(t.Root, pods, string(t.Pod), mounts, t.Volume, mount)
}

// Data is the file in which the kubelet keeps what the volume is; see ParseData.
func (t Target) Data() string {
	if t.Block {
		return filepath.Join(t.Root, devices, t.Volume, "data", dataFile)
	}
	return filepath.Join(filepath.Dir(t.Path()), dataFile)
}

// Parse is the way back from Path; false if it is the path of no target.
func Parse(path string) (Target, bool) {
	above, last := split(path)
	above, volume := split(above)
	if !filepath.IsAbs(path) || len(validation.IsDNS1123Subdomain(volume)) > 0 {
		return Target{}, false
	}
	if root, ok := strings.CutSuffix(above, "/"+devices+"/"+publish); ok {
		return Target{Root: cmp.Or(root, "/"), Volume: volume, Pod: types.UID(last), Block: true}, true
	}
	above, mounted := strings.CutSuffix(above, "/"+mounts)
	above, pod := split(above)
	root, ok := strings.CutSuffix(above, "/"+pods)
	return Target{Root: cmp.Or(root, "/"), Volume: volume, Pod: types.UID(pod)}, ok && mounted && last == mount
}

func split(path string) (above, last string) {
	above, last = filepath.Split(filepath.Clean(path))
	return filepath.Clean(above), last
}

// Data is what a kubelet keeps of a volume.
type Data struct {
	// Driver is the name of the CSI driver.
	Driver string `json:"driverName"`
	// Handle of the volume.
	Handle string `json:"volumeHandle"`
}

// ParseData reads what stands in a file of Target.Data; false if that says nothing.
func ParseData(raw []byte) (Data, bool) {
	var d Data
	err := json.Unmarshal(raw, &d)
	return d, err == nil && d.Driver != "" && d.Handle != ""
}

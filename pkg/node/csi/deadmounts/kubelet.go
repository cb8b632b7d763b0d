package deadmounts

import (
	"encoding/json"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
)

// Where the kubelet shows a volume to a pod, and keeps what it knows of it (volDataFileName
// and the directories in pkg/volume/csi/csi_util.go, csi_mounter.go and csi_block.go of
// Kubernetes 1.35).
var (
	ofFilesystem = regexp.MustCompile(`/pods/([^/]+)/volumes/kubernetes\.io~csi/[^/]+/mount$`)
	ofBlock      = regexp.MustCompile(`^(.*/kubernetes\.io/csi/volumeDevices)/publish/([^/]+)/([^/]+)$`)
)

const volumeData = "vol_data.json"

// shown is a volume that a pod has.
type shown struct {
	pod types.UID
	// data is the file in which the kubelet keeps what the volume is.
	data string
}

// parse says what is shown on a path of the mount table; false if it is no pod's.
func parse(path string) (shown, bool) {
	if m := ofFilesystem.FindStringSubmatch(path); m != nil {
		return shown{types.UID(m[1]), filepath.Join(filepath.Dir(path), volumeData)}, true
	}
	if m := ofBlock.FindStringSubmatch(path); m != nil {
		return shown{types.UID(m[3]), filepath.Join(m[1], m[2], "data", volumeData)}, true
	}
	return shown{}, false
}

// volumeOf is the handle of the volume in a file of the kubelet's; "" if it is another
// driver's, or the file says nothing.
func volumeOf(raw []byte, driver string) string {
	var data struct {
		DriverName   string `json:"driverName"`
		VolumeHandle string `json:"volumeHandle"`
	}
	if json.Unmarshal(raw, &data) != nil || data.DriverName != driver {
		return ""
	}
	return data.VolumeHandle
}

package kubelet

import (
	"strings"
	"testing"
)

// TestTarget is held to paths that a kubelet made.
func TestTarget(t *testing.T) {
	const root = "/var/lib/kubelet"
	for path, want := range map[string]struct {
		target Target
		data   string
	}{
		root + "/pods/66ec/volumes/kubernetes.io~csi/pvc-1/mount": {
			Target{root, "pvc-1", "66ec", false}, root + "/pods/66ec/volumes/kubernetes.io~csi/pvc-1/vol_data.json",
		},
		root + "/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/66ec": {
			Target{root, "pvc-1", "66ec", true}, root + "/plugins/kubernetes.io/csi/volumeDevices/pvc-1/data/vol_data.json",
		},
	} {
		got, ok := Parse(path)
		if !ok || got != want.target || got.Path() != path || got.Data() != want.data {
			t.Errorf("%s: %+v, %s, %s", path, got, got.Path(), got.Data())
		}
	}
	for _, other := range []string{
		"", "/", "/mnt", "a/mount", root + "/pods/66ec/volume-subpaths/pvc-1/c/0", root + "/pods/66ec/volumes/kubernetes.io~empty-dir/x/mount",
		root + "/pods/66ec/volumes/kubernetes.io~csi/pvc-1/mount/mount", root + "/pods/66ec/volumes/kubernetes.io~csi/pvc-1/other",
		root + "/nodes/66ec/volumes/kubernetes.io~csi/pvc-1/mount",
		root + "/plugins/kubernetes.io/csi/csi.snap.nvidia.com/00ff/globalmount", root + "/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1/v",
		root + "/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/66ec",
	} {
		if got, ok := Parse(other); ok {
			t.Errorf("%q is taken for %+v", other, got)
		}
	}
}

func TestParseData(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"driverName":"d","volumeHandle":"v","specVolID":"pv"}`: true, `{"driverName":"d"}`: false, `{"volumeHandle":"v"}`: false, `{"driverName":"d"`: false, ``: false,
	} {
		got, ok := ParseData([]byte(raw))
		if ok != want || ok && got != (Data{"d", "v"}) {
			t.Errorf("%s: %+v, %t", raw, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount")
	f.Add("/plugins/kubernetes.io/csi/volumeDevices/publish/../u")
	f.Fuzz(func(t *testing.T, path string) {
		got, ok := Parse(path)
		if !ok {
			return
		}
		if name := got.Volume; strings.Contains(name, "/") || name == "." || name == ".." || strings.Contains(string(got.Pod), "/") {
			t.Errorf("%q is taken for %+v", path, got)
		}
		if again, ok := Parse(got.Path()); !ok || again != got {
			t.Errorf("%q is %+v, and back %+v", path, got, again)
		}
	})
}

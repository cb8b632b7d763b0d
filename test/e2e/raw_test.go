//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// rawDevice is where the pods of raw subjects have their volume.
const rawDevice = "/dev/data"

// rawLines is the room that each writer has on a raw device, in lines of a sector each.
const rawLines = 8192

// raw has the pod of a StatefulSet use its volume as a block device.
func raw(set *appsv1.StatefulSet) {
	c := &set.Spec.Template.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: rawDevice}}
	set.Spec.VolumeClaimTemplates[0].Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

// appendSectors writes a line into the next sector of a writer's room, and says it once the medium has
// acknowledged it, again and again. One that fails ends it.
func appendSectors(writer int) string {
	return fmt.Sprintf(`i=0; while printf '%%-511s\n' $TAG-$i | dd of=%s bs=512 seek=$((%d+i)) conv=notrunc,fsync 2>/dev/null; do echo $TAG-$i; i=$((i+1)); sleep 0.1; done`,
		rawDevice, writer*rawLines)
}

// sectors are the lines on a raw device, in their order, of all writers.
func (s *subject) sectors(ctx context.Context) []string {
	GinkgoHelper()
	var out []string
	for n, w := range s.writers {
		out = append(out, strings.Fields(sh(ctx, s.key, "dd if=%s bs=512 skip=%d count=%d 2>/dev/null | tr -d '\\000'", rawDevice, n*rawLines, w.count()+2))...)
	}
	return out
}

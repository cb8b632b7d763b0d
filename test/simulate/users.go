package simulate

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/judge"
)

// use lets Kubernetes and its users ask for what is wanted, and give back what is not.
func (w *World) use() {
	for _, volume := range volumeNames[:w.plan.Volumes] {
		others := false
		for _, a := range w.attachments(volume) {
			if a.Spec.DPUNodeName == w.wanted[volume] {
				continue
			}
			others = true
			if a.DeletionTimestamp.IsZero() {
				w.Engine.Tell("kubernetes", "gives %s back", a.Name)
				w.must(w.Host.Delete(a))
			}
		}
		if host := w.wanted[volume]; host != "" && (!others || w.plan.Eager) {
			a := kubetest.DPUVolumeAttachment(volume, host)
			if _, found := w.Host.Object(cluster.KeyOf(a)); !found {
				w.Engine.Tell("kubernetes", "asks for %s", a.Name)
				w.must(w.Host.Create(a))
			}
		}
	}
	w.Engine.After(time.Duration(w.dice.Int64N(int64(time.Second)))+200*time.Millisecond, w.use)
}

// attachments are those of a volume in the host cluster.
func (w *World) attachments(volume string) []*storagev1alpha1.DPUVolumeAttachment {
	return slices.DeleteFunc(cluster.All[*storagev1alpha1.DPUVolumeAttachment](w.Host), func(a *storagev1alpha1.DPUVolumeAttachment) bool {
		return a.Spec.DPUVolumeName != volume
	})
}

// lacking says what is not as it is wanted, by volume: nothing of one that is.
func (w *World) lacking() map[string]string {
	out := map[string]string{}
	for _, volume := range volumeNames[:w.plan.Volumes] {
		if reason := w.lacks(volume); reason != "" {
			out[volume] = reason
		}
	}
	return out
}

func (w *World) lacks(volume string) string {
	host := w.wanted[volume]
	for _, a := range w.attachments(volume) {
		if a.Spec.DPUNodeName != host {
			return "attachment " + a.Name + " does not go: " + a.Status.Message
		}
	}
	if host == "" {
		return ""
	}
	a, found := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, kubetest.HostNamespace, host+"-"+volume)
	switch {
	case !found:
		return "attachment " + host + "-" + volume + " is not there"
	case !meta.IsStatusConditionTrue(a.Status.Conditions, storagev1alpha1.ConditionReady):
		return "attachment " + a.Name + " is not ready: " + a.Status.Message
	}
	if _, shown := w.card("dpu-" + host).Shows(volume); !shown {
		return "attachment " + a.Name + " is ready, and its DPU does not show the volume"
	}
	if _, holds := w.Judge.Tenure("dpu-"+host, volume); !holds {
		return "attachment " + a.Name + " is ready, and its DPU does not hold the right to write"
	}
	return ""
}

// whoms are those for whom an attachment may wait.
var whoms = []string{"DPU ", "vendor", "operator", "storage"}

// judgeProgress finds what is stuck without a word for whom it waits.
func (w *World) judgeProgress() {
	lacking := w.lacking()
	for _, volume := range volumeNames[:w.plan.Volumes] {
		reason := lacking[volume]
		_, said, _ := strings.Cut(reason, ": ")
		if reason != "" && !slices.ContainsFunc(whoms, func(whom string) bool { return strings.Contains(said, whom) }) {
			w.Judge.Find(judge.Stuck, "volume %s, wanted on %q: %s", volume, w.wanted[volume], reason)
		}
	}
}

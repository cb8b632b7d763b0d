package simulate

import (
	"slices"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

const (
	// silentAfter is after how long a DPU that has not beaten is called silent, as the
	// condition DPUAlive calls it.
	silentAfter = 13 * time.Second
	// restoring is how long the API server of a cluster is down while its etcd is restored.
	restoring = 3 * time.Second
)

// restore lets persons restore the DPU cluster from a backup, by the steps of docs/restore.md.
func (w *World) restore(backup cluster.Backup) {
	if w.restoring {
		return
	}
	w.restoring = true
	off := w.silent()
	for _, d := range off { // step 1
		w.Engine.Tell("operator", "switches %s off, which is silent", d.Name)
		d.PowerOff()
		w.processOf(d.Name).hold()
	}
	for _, name := range []string{"hosts", "hosts-2"} { // step 2
		w.processOf(name).hold()
	}
	w.down[w.DPU.Name], w.barred = true, true // step 3
	w.Engine.After(restoring, func() {
		w.Engine.Tell("operator", "restores the DPU cluster")
		w.Judge.Restore(func() { w.DPU.Restore(backup) })
		delete(w.down, w.DPU.Name)
		for _, name := range []string{"storage", "attacher"} { // step 4
			w.Engine.After(time.Duration(w.dice.Int64N(int64(time.Second))), w.processOf(name).hold)
		}
		w.Engine.After(2*time.Second, func() {
			w.doubt()
			w.afterRestore(off)
		})
	})
}

// doubt lets each claim be lost that had been granted for an attachment which its DPU had not
// touched when the backup was made.
func (w *World) doubt() {
	for _, claim := range cluster.All[*moorv1alpha1.WriterClaim](w.DPU) {
		if claim.Status == nil || claim.Status.AttachmentUID == "" {
			continue
		}
		s := claim.Status
		if w.behind(claim.Name) {
			continue // that is noticed
		}
		a, found := cluster.Find[*storagev1alpha1.VolumeAttachment](w.DPU, kubetest.DPUNamespace, s.Attachment)
		if !found || a.UID != s.AttachmentUID || slices.Contains(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment) {
			continue
		}
		w.Engine.Tell("operator", "lets the claim of %s be lost", claim.Name)
		next := claim.DeepCopy()
		next.Status.Phase, next.Status.LostEpoch, next.Status.Attachment, next.Status.AttachmentUID = moorv1alpha1.ClaimLost, s.Epoch, "", ""
		next.Status.Lost = []moorv1alpha1.LostHolder{{DPU: s.Holder, Attachment: s.Attachment, AttachmentUID: s.AttachmentUID, Epoch: s.Epoch}}
		w.must(w.DPU.UpdateStatus(next))
	}
}

// silent are the DPUs that do not beat.
func (w *World) silent() []*hardware.DPU {
	return slices.DeleteFunc(slices.Clone(w.Cards), func(d *hardware.DPU) bool {
		l := w.processOf(d.Name).life
		return d.On && l != nil && l.Alive() && !w.down[d.Name] && time.Since(w.beats[d.Host].dpu) < silentAfter
	})
}

// afterRestore starts what grants, ends what no DPUVolumeAttachment wants, and waits until
// each claim knows what the host cluster does before it starts what opens the storage.
func (w *World) afterRestore(off []*hardware.DPU) {
	w.processOf("hosts").begin()                          // step 6
	w.Engine.After(3*time.Second, w.endUnwanted)          // step 7
	w.Engine.After(5*time.Second, func() { w.open(off) }) // step 8
}

func (w *World) endUnwanted() {
	for _, a := range cluster.All[*storagev1alpha1.VolumeAttachment](w.DPU) {
		owner, found := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, kubetest.HostNamespace, a.Name)
		if !found || a.Labels[storagev1alpha1.LabelOwnerUID] != string(owner.UID) {
			w.Engine.Tell("operator", "deletes VolumeAttachment %s, which no DPUVolumeAttachment wants", a.Name)
			w.must(w.DPU.Delete(a.DeepCopy()))
		}
	}
}

// open starts what opens the storage, and the DPUs that were switched off, once no claim of
// a volume that is attached knows less than the host cluster.
func (w *World) open(off []*hardware.DPU) {
	for _, volume := range volumeNames[:w.plan.Volumes] {
		stays := slices.ContainsFunc(w.attachments(volume), func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.DeletionTimestamp.IsZero() })
		if stays && w.behind(volume) {
			w.Engine.After(time.Second, func() { w.open(off) })
			return
		}
	}
	w.Engine.Tell("operator", "starts what opens the storage")
	w.barred = false // step 9
	w.processOf("storage").begin()
	w.processOf("attacher").begin()
	for _, d := range off {
		w.processOf(d.Name).held = false
		w.bootDPU(d)
	}
	w.restoring = false
}

func (w *World) behind(volume string) bool {
	v, found := cluster.Find[*storagev1alpha1.DPUVolume](w.Host, kubetest.HostNamespace, volume)
	if !found || v.Status.LastGrant == nil {
		return false
	}
	claim, found := cluster.Find[*moorv1alpha1.WriterClaim](w.DPU, kubetest.DPUNamespace, volume)
	if found && claim.Status != nil && (claim.Status.Phase == moorv1alpha1.ClaimLost || claim.Status.Phase == moorv1alpha1.ClaimFencing) {
		return false // nothing is granted by it
	}
	return !found || claim.Status == nil || claim.Status.Epoch < v.Status.LastGrant.Epoch
}

package simulate

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/hardware"
	"github.com/moor-storage/moor/test/simulate/plan"
)

// Persons restore clusters by the steps of docs/restore.md. Their numbers stand beside what
// is done.

const (
	// restoring is how long the API server of a cluster is down while its etcd is restored.
	restoring = 3 * time.Second
	// farAbove is by how much the last grant of each volume is raised if both were restored.
	farAbove = 1_000_000
)

// backUp takes backups, of both clusters at different times, and lets persons restore one of
// them, or both, later.
func (w *World) backUp(e plan.Event) {
	host, there := w.Host.Backup(), w.DPU.Backup()
	if e.What == plan.RestoreBoth {
		later := func() { host = w.Host.Backup() }
		if w.dice.IntN(2) == 0 {
			later = func() { there = w.DPU.Backup() }
		}
		w.Engine.After(e.For/2, later)
	}
	w.Engine.After(e.For, func() {
		if w.restoring {
			return
		}
		w.restoring = true
		switch e.What {
		case plan.RestoreHosts:
			w.restoreHosts(host)
		case plan.RestoreBoth:
			w.restoreBoth(host, there)
		default:
			w.restoreDPUs(there)
		}
	})
}

// fromBackup restores clusters while their API servers are down.
func (w *World) fromBackup(backups map[*cluster.Server]cluster.Backup, then func()) {
	for s := range backups {
		w.down[s.Name] = true
	}
	w.Engine.After(restoring, func() {
		for _, s := range []*cluster.Server{w.Host, w.DPU} {
			if backup, ok := backups[s]; ok {
				w.Engine.Tell("operator", "restores the %s", s.Name)
				w.Judge.Restore(func() { s.Restore(backup) })
				delete(w.down, s.Name)
			}
		}
		then()
	})
}

// restoreDPUs restores the DPU cluster.
func (w *World) restoreDPUs(backup cluster.Backup) {
	off := w.silent()
	for _, d := range off { // step 1
		w.Engine.Tell("operator", "switches %s off, which is silent", d.Name)
		d.PowerOff()
		w.processOf(d.Name).hold()
	}
	w.stopGranting() // step 2
	w.barred = true  // step 3
	w.fromBackup(map[*cluster.Server]cluster.Backup{w.DPU: backup}, func() {
		w.stopSoon("storage", "attacher") // step 4
		w.Engine.After(2*time.Second, func() {
			w.doubt()
			w.processOf("hosts").begin()                 // step 6
			w.Engine.After(3*time.Second, w.endUnwanted) // step 7
			w.Engine.After(5*time.Second, func() {       // step 8
				w.caughtUp(func() { w.open(off) })
			})
		})
	})
}

// restoreHosts restores the host cluster.
func (w *World) restoreHosts(backup cluster.Backup) {
	w.stopGranting() // step 1
	w.fromBackup(map[*cluster.Server]cluster.Backup{w.Host: backup}, func() {
		w.Engine.After(2*time.Second, func() {
			w.name()                     // step 3
			moved := w.moved()           // step 5
			w.processOf("hosts").begin() // step 6
			w.Engine.After(3*time.Second, func() {
				w.endUnwanted()     // step 7
				w.attachAnew(moved) // step 8
				w.restoring = false
			})
		})
	})
}

// restoreBoth restores both clusters, to whatever times.
func (w *World) restoreBoth(host, there cluster.Backup) {
	w.Engine.Tell("operator", "switches all hosts and DPUs off")
	w.dark = true // step 1
	for _, d := range w.Cards {
		d.HostOn = false
		d.PowerOff()
		w.processOf(d.Name).hold()
	}
	w.Engine.After(hardware.DrainBound, func() {
		w.fromBackup(map[*cluster.Server]cluster.Backup{w.Host: host, w.DPU: there}, func() { // step 2
			w.stopSoon("hosts", "hosts-2", "storage", "attacher") // step 3
			w.Engine.After(2*time.Second, func() {
				w.name()                     // step 3 of a restore of the host cluster
				w.raise()                    // step 4
				w.processOf("hosts").begin() // step 5: as steps 6 to 8 after a restore of the DPU cluster
				w.Engine.After(3*time.Second, w.endUnwanted)
				w.Engine.After(5*time.Second, func() { w.caughtUp(w.lighten) })
			})
		})
	})
}

// stopGranting stops what grants, for good.
func (w *World) stopGranting() {
	for _, name := range []string{"hosts", "hosts-2"} {
		w.processOf(name).hold()
	}
}

// stopSoon stops programs, which have been started by a restore, within a second.
func (w *World) stopSoon(programs ...string) {
	for _, name := range programs {
		w.Engine.After(time.Duration(w.dice.Int64N(int64(time.Second))), w.processOf(name).hold)
	}
}

// doubt lets each claim be lost that had been granted for an attachment which its DPU had not
// touched when the backup was made.
func (w *World) doubt() {
	for _, claim := range cluster.All[*moorv1alpha1.WriterClaim](w.DPU) {
		s := claim.Status
		if s == nil || s.AttachmentUID == "" || w.behind(claim.Name) { // that is noticed
			continue
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
		l, last := w.processOf(d.Name).life, w.beats[d.Name]
		if own, found := cluster.Find[*moorv1alpha1.DPUStorageNode](w.DPU, "", d.Name); w.plan.Leases && found {
			last = own.Status.DPU.Time.Time
		}
		return d.On && l != nil && l.Alive() && !w.down[d.Name] && time.Since(last) < nodehealth.DefaultSilence
	})
}

// endUnwanted ends what no DPUVolumeAttachment wants.
func (w *World) endUnwanted() {
	for _, a := range cluster.All[*storagev1alpha1.VolumeAttachment](w.DPU) {
		owner, found := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, kubetest.HostNamespace, a.Name)
		if a.DeletionTimestamp.IsZero() && (!found || a.Labels[storagev1alpha1.LabelOwnerUID] != string(owner.UID)) {
			w.Engine.Tell("operator", "deletes VolumeAttachment %s, which no DPUVolumeAttachment wants", a.Name)
			w.must(w.DPU.Delete(a.DeepCopy()))
		}
	}
}

// caughtUp waits until no claim of a volume that is attached knows less than the host cluster:
// one whose attachment goes in the host cluster is, until it goes in the DPU cluster too.
func (w *World) caughtUp(then func()) {
	for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
		stays := slices.ContainsFunc(w.attachments(volume), func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.DeletionTimestamp.IsZero() }) ||
			slices.ContainsFunc(cluster.All[*storagev1alpha1.VolumeAttachment](w.DPU), func(a *storagev1alpha1.VolumeAttachment) bool {
				return a.Spec.Source.VolumeRef.Name == volume && a.DeletionTimestamp.IsZero()
			})
		if stays && w.behind(volume) {
			w.attachElsewhere() // what says so
			w.endUnwanted()     // what goes while one waits
			w.Engine.After(time.Second, func() { w.caughtUp(then) })
			return
		}
	}
	then()
}

// behind reports whether the claim of a volume knows less than the host cluster, and something
// could be granted by it.
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

// open starts what opens the storage, and the DPUs that were switched off.
func (w *World) open(off []*hardware.DPU) {
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

// moved are the volumes that were attached anew since the backup.
func (w *World) moved() []string {
	return slices.DeleteFunc(slices.Clone(plan.VolumeNames[:w.plan.Volumes]), func(volume string) bool {
		claim, granted := cluster.Find[*moorv1alpha1.WriterClaim](w.DPU, kubetest.DPUNamespace, volume)
		v, found := cluster.Find[*storagev1alpha1.DPUVolume](w.Host, kubetest.HostNamespace, volume)
		if !granted || claim.Status == nil || !found {
			return true
		}
		return v.Status.LastGrant != nil && claim.Status.Epoch <= v.Status.LastGrant.Epoch
	})
}

// attachAnew deletes what Kubernetes has on record of the attachments of volumes.
func (w *World) attachAnew(volumes []string) {
	for _, volume := range volumes {
		for _, host := range w.hosts() {
			name := podvolume.AttachmentName(volume, kubetest.Driver, host)
			if va, found := cluster.Find[*storagev1.VolumeAttachment](w.Host, "", name); found {
				w.Engine.Tell("operator", "has %s attached to %s anew", volume, host)
				w.must(w.Host.Delete(va.DeepCopy()))
			}
		}
	}
}

// raise raises the last grant of each volume above all that may have been.
func (w *World) raise() {
	for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
		v, found := cluster.Find[*storagev1alpha1.DPUVolume](w.Host, kubetest.HostNamespace, volume)
		if !found {
			continue
		}
		next, epoch := v.DeepCopy(), int64(farAbove)
		if last := v.Status.LastGrant; last != nil {
			epoch += last.Epoch
		}
		next.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: epoch, DPU: "restored", Attachment: "restored", AttachmentUID: "restored", Over: true}
		w.must(w.Host.UpdateStatus(next))
	}
}

// lighten has the storage opened anew for all that is attached, and switches the DPUs on, and
// then the hosts.
func (w *World) lighten() {
	for _, sv := range cluster.All[*storagev1alpha1.SVVolumeAttachment](w.DPU) { // step 6
		next := sv.DeepCopy()
		next.Status.Attached = false
		w.must(w.DPU.UpdateStatus(next))
	}
	w.Engine.Tell("operator", "starts what opens the storage, and switches all on")
	w.processOf("storage").begin() // step 7
	w.processOf("attacher").begin()
	w.dark = false
	for _, d := range w.Cards {
		w.processOf(d.Name).held = false
		if d.Host == "" {
			w.bootElsewhere(d)
			continue
		}
		w.bootDPU(d)
		w.Engine.After(time.Second, func() { w.bootHost(d.Host) })
	}
	w.restoring = false
}

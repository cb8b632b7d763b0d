package simulate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/hardware"
	"github.com/moor-storage/moor/test/simulate/plan"
)

const (
	// operatorPeriod is how often an operator looks at what does not get on by itself.
	operatorPeriod = 2 * time.Minute
	// patience is how long an operator keeps a DPU that was pulled.
	patience = 90 * time.Second
)

// happenByPersons lets an event of the plan happen that people cause.
func (w *World) happenByPersons(e plan.Event) {
	switch e.What {
	case plan.Strip:
		w.strip(e.Who, e.Where)
	case plan.StripOwner:
		w.stripOwner(e.Who, e.Where)
	case plan.LetGo:
		w.letGo(e.Who, e.Where)
	case plan.LoseClaim:
		w.loseClaim(e.Who)
	case plan.Ask:
		w.ask(e.Who)
	case plan.Vouch:
		w.vouch(e.Who)
	}
}

// strip takes the VolumeAttachment of a volume to a host away by force.
func (w *World) strip(volume, host string) {
	w.DPU.Strip(cluster.Key{Kind: "VolumeAttachment", Namespace: kubetest.DPUNamespace, Name: host + "-" + volume})
}

// stripOwner takes the DPUVolumeAttachment away, with the request of Kubernetes that it is
// for.
func (w *World) stripOwner(volume, host string) {
	w.Host.Strip(cluster.Key{Kind: "VolumeAttachment", Name: podvolume.AttachmentName(volume, kubetest.Driver, host)})
	w.Host.Strip(cluster.Key{Kind: "DPUVolumeAttachment", Namespace: kubetest.HostNamespace, Name: host + "-" + volume})
}

// letGo takes the node driver's finalizer off the VolumeAttachment of a device that is on
// record as shown.
func (w *World) letGo(volume, host string) {
	a, found := cluster.Find[*storagev1alpha1.VolumeAttachment](w.DPU, kubetest.DPUNamespace, host+"-"+volume)
	if !found || !a.Status.DPU.Attached {
		return
	}
	next := a.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == storagev1alpha1.FinalizerDPUAttachment })
	w.must(w.DPU.Update(next))
}

// loseClaim deletes a WriterClaim by force.
func (w *World) loseClaim(volume string) {
	w.DPU.Strip(cluster.Key{Kind: "WriterClaim", Namespace: kubetest.DPUNamespace, Name: volume})
}

// ask writes a person's request that a host fails over.
func (w *World) ask(host string) {
	node, found := cluster.Find[*corev1.Node](w.Host, "", host)
	n, also := cluster.Find[*moorv1alpha1.DPUStorageNode](w.Host, "", host)
	if !found || !also {
		return
	}
	next := n.DeepCopy()
	next.Spec.Failover = &moorv1alpha1.FailoverRequest{
		DPUName: n.Spec.DPUName, BootID: node.Status.NodeInfo.BootID, Time: metav1.NewTime(time.Now().Truncate(time.Second)),
		RequestedBy: "jane", Reason: "it looks odd",
	}
	w.must(w.Host.Update(next))
}

// vouch lets an operator see to it that a claim ends whose holder cannot say so: it pulls
// the DPU, waits until nothing of it is on its way, gives its word, and puts the DPU back
// when the claim is not held for it any more, or when that has taken too long.
func (w *World) vouch(volume string) {
	dpu, uid, epoch := w.unproven(volume)
	if dpu == "" || slices.ContainsFunc(w.Cards, func(d *hardware.DPU) bool { return d.Pulled }) {
		return
	}
	card := w.card(dpu)
	w.Engine.Tell("operator", "sees to it that %s, which holds %s, has no power", dpu, volume)
	card.Pulled = true
	card.PowerOff()
	w.processOf(dpu).end()
	w.Engine.After(hardware.DrainBound, func() { w.write(volume, moorv1alpha1.OperatorReceipt{Holder: dpu, AttachmentUID: uid, Epoch: epoch}) })
	w.Engine.After(hardware.DrainBound+time.Second, func() { w.putBack(card, volume, w.Engine.Elapsed()+patience) })
}

// unproven is who holds a claim for a VolumeAttachment that is not there, or is on a shelf, or is on
// record as one who may write of a claim that was lost.
func (w *World) unproven(volume string) (dpu string, uid types.UID, epoch int64) {
	claim, found := cluster.Find[*moorv1alpha1.WriterClaim](w.DPU, kubetest.DPUNamespace, volume)
	if !found || claim.Status == nil {
		return "", "", 0
	}
	s := claim.Status
	if len(s.Lost) > 0 {
		return s.Lost[0].DPU, s.Lost[0].AttachmentUID, s.Epoch
	}
	a, found := cluster.Find[*storagev1alpha1.VolumeAttachment](w.DPU, kubetest.DPUNamespace, s.Attachment)
	if s.Holder == "" || found && a.UID == s.AttachmentUID && !w.card(s.Holder).Shelved {
		return "", "", 0
	}
	return s.Holder, s.AttachmentUID, s.Epoch
}

// write writes an operator's word, if what it is about is still so.
func (w *World) write(volume string, word moorv1alpha1.OperatorReceipt) {
	dpu, uid, epoch := w.unproven(volume)
	if dpu != word.Holder || uid != word.AttachmentUID || epoch != word.Epoch {
		return
	}
	claim, _ := cluster.Find[*moorv1alpha1.WriterClaim](w.DPU, kubetest.DPUNamespace, volume)
	next, now := claim.DeepCopy(), metav1.NewTime(time.Now().Truncate(time.Second))
	word.Time, word.Operator, word.Reason = &now, "joe", "I have the card in my hand"
	next.Spec.OperatorReceipt = &word
	w.Engine.Tell("operator", "vouches that %s cannot write %s under epoch %d", dpu, volume, epoch)
	w.must(w.DPU.Update(next))
}

// putBack puts a DPU back that an operator has pulled, once nothing waits for it.
func (w *World) putBack(card *hardware.DPU, volume string, until time.Duration) {
	dpu, _, _ := w.unproven(volume)
	if dpu == card.Name && w.Engine.Elapsed() < until {
		w.Engine.After(time.Second, func() { w.putBack(card, volume, until) })
		return
	}
	if claim, found := cluster.Find[*moorv1alpha1.WriterClaim](w.DPU, kubetest.DPUNamespace, volume); found && claim.Spec.OperatorReceipt != nil {
		next := claim.DeepCopy()
		next.Spec.OperatorReceipt = nil
		w.must(w.DPU.Update(next))
	}
	w.Engine.Tell("operator", "puts %s back", card.Name)
	card.Pulled = false
	w.bootDPU(card)
}

// operate lets an operator look at the volumes that are not as they are wanted, again and again.
func (w *World) operate() {
	w.Engine.Every(operatorPeriod, func() {
		lacking := w.lacking()
		for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
			if lacking[volume] != "" {
				w.vouch(volume)
			}
		}
	})
}

// replaceByOther takes the card out of a host, and puts one of another name in its place; both are
// without power for a time. The one of before is on a shelf then, or goes on in a host of no
// cluster.
func (w *World) replaceByOther(host string, e plan.Event) {
	old := w.cardIn(host)
	if old.Pulled || w.misnamed[host] {
		return
	}
	w.played[plan.OtherCard]++
	w.bothDie(host, e.For)
	old.Host, old.Shelved = "", true
	card, err := w.plug(host, old.Name+"2")
	w.must(err)
	card.HostOn = false
	for _, b := range w.bmcs[host].all() {
		b.DPU = card
	}
	if b := w.bmcs[host].dpu; b != nil {
		b.Other = true
	}
	w.drive(card)
	w.watch(card)
	if e.Where != "" {
		w.Engine.After(e.For, func() {
			w.Engine.Tell("operator", "puts %s into another host", old.Name)
			old.Shelved = false
			w.bootElsewhere(old)
		})
	}
	w.correct()
}

// bootElsewhere starts a host of no cluster, and the card in it.
func (w *World) bootElsewhere(card *hardware.DPU) {
	card.HostOn = !card.Shelved && !w.dark
	w.bootDPU(card)
}

// correct has persons name DPUs rightly, and have attached anew what was not, as soon as they can.
func (w *World) correct() {
	w.Engine.Every(5*time.Second, func() {
		if !w.restoring && !w.down[w.Host.Name] && !w.down[w.DPU.Name] {
			w.name()
			w.attachElsewhere()
		}
	})
}

// nameWrongly has a person name the DPU of another host for one, and the other way round, for a time.
func (w *World) nameWrongly(host string, e plan.Event) {
	if w.restoring || w.down[w.Host.Name] || e.Where == host || w.misnamed[host] || w.misnamed[e.Where] {
		return
	}
	w.played[plan.NameWrongly]++
	w.misnamed[host], w.misnamed[e.Where] = true, true
	w.nameOne(host, w.cardIn(e.Where).Name)
	w.nameOne(e.Where, w.cardIn(host).Name)
	w.Engine.After(e.For, func() {
		w.misnamed[host], w.misnamed[e.Where] = false, false
		w.correct()
	})
}

// name names the card of each host that has another one than its DPUStorageNode says.
func (w *World) name() {
	for _, host := range w.hosts() {
		if !w.misnamed[host] {
			w.nameOne(host, w.cardIn(host).Name)
		}
	}
}

// nameOne names the DPU of a host.
func (w *World) nameOne(host, dpu string) {
	n, found := cluster.Find[*moorv1alpha1.DPUStorageNode](w.Host, "", host)
	if !found || n.Spec.DPUName == dpu {
		return
	}
	w.Engine.Tell("operator", "names %s for host %s, in place of %s", dpu, host, n.Spec.DPUName)
	next := n.DeepCopy()
	next.Spec.DPUName, next.Spec.Replaces = dpu, n.Spec.DPUName
	w.must(w.Host.Update(next))
}

// attachElsewhere deletes what is attached through another DPU than that of its host, as the words of
// the attachment say.
func (w *World) attachElsewhere() {
	for _, a := range cluster.All[*storagev1alpha1.DPUVolumeAttachment](w.Host) {
		n, named := cluster.Find[*moorv1alpha1.DPUStorageNode](w.Host, "", a.Spec.DPUNodeName)
		there, found := cluster.Find[*storagev1alpha1.VolumeAttachment](w.DPU, kubetest.DPUNamespace, a.Name)
		if !named || !found || there.Spec.NodeName == n.Spec.DPUName || w.misnamed[a.Spec.DPUNodeName] || !a.DeletionTimestamp.IsZero() {
			continue
		}
		w.Engine.Tell("operator", "has %s attached anew, which is through %s", a.Name, there.Spec.NodeName)
		w.Host.Strip(cluster.Key{Kind: "VolumeAttachment", Name: podvolume.AttachmentName(a.Spec.DPUVolumeName, kubetest.Driver, a.Spec.DPUNodeName)})
		w.must(w.Host.Delete(a.DeepCopy()))
	}
}

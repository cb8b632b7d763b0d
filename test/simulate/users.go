package simulate

import (
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/judge"
	"github.com/moor-storage/moor/test/simulate/plan"
)

// use plays Kubernetes: one pod for each volume, on the host where it is wanted or on
// another one that is well; a VolumeAttachment for each host that has such a pod; and for
// each of these, by the CSI controller, a DPUVolumeAttachment.
func (w *World) use() {
	if !w.down[w.Host.Name] {
		for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
			w.schedule(volume)
			for _, host := range w.hosts() {
				w.attach(volume, host)
			}
			w.replicate(volume)
		}
	}
	w.Engine.After(time.Duration(w.dice.Int64N(int64(time.Second)))+200*time.Millisecond, w.use)
}

// podOf is the pod of a volume.
func podOf(volume string) string { return "app-" + volume }

// schedule ends the pod of a volume that is wanted elsewhere, if its kubelet does, and
// starts one.
func (w *World) schedule(volume string) {
	pod, found := cluster.Find[*corev1.Pod](w.Host, metav1.NamespaceDefault, podOf(volume))
	if found {
		if pod.Spec.NodeName != w.wanted[volume] && w.runs(pod.Spec.NodeName) {
			w.Engine.Tell("kubernetes", "ends %s on %s", pod.Name, pod.Spec.NodeName)
			w.must(w.Host.Delete(pod))
		}
		return
	}
	host := w.wanted[volume]
	if host == "" {
		return
	}
	takes := func(host string) bool { return w.schedulable(host) && !w.lostWay(volume, host) }
	if !takes(host) {
		i := slices.IndexFunc(plan.HostNames[:w.plan.Hosts], takes)
		if i < 0 {
			return
		}
		host = plan.HostNames[i]
		w.wanted[volume] = host
	}
	w.Engine.Tell("kubernetes", "starts %s on %s", podOf(volume), host)
	pod = kubetest.Pod(podOf(volume), host, volume)
	if w.plan.Ways {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "app", Controller: ptr.To(true)}}
	}
	w.must(w.Host.Create(pod))
}

// runs reports whether a host does what its kubelet is told.
func (w *World) runs(host string) bool {
	return w.cardIn(host).HostOn && !w.down["host "+host]
}

func (w *World) schedulable(host string) bool {
	node, found := cluster.Find[*corev1.Node](w.Host, "", host)
	return found && len(node.Spec.Taints) == 0 && ready(node).Status == corev1.ConditionTrue
}

// ready is what the kubelet says of its Node.
func ready(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	return &node.Status.Conditions[i]
}

// attach asks for a volume on a host, or gives it back, as the pods there want. A host
// that does not unmount keeps it, until it is put out of service.
func (w *World) attach(volume, host string) {
	pod, found := cluster.Find[*corev1.Pod](w.Host, metav1.NamespaceDefault, podOf(volume))
	wanted := found && pod.Spec.NodeName == host
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: podvolume.AttachmentName(volume, kubetest.Driver, host)}}
	_, asked := w.Host.Object(cluster.KeyOf(va))
	a := kubetest.DPUVolumeAttachment(volume, host)
	is, made := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, a.Namespace, a.Name)
	replica := made && is.Spec.Role == storagev1alpha1.RoleReplica
	if w.plan.Nodes {
		w.stage(wanted, a, is)
		return
	}
	switch {
	case wanted && !asked && (!made || replica):
		w.askFor(va, a, is)
	case !wanted && asked && w.detaches(host):
		w.must(w.Host.Delete(va))
	case !asked && made && !replica && is.DeletionTimestamp.IsZero():
		w.Engine.Tell("kubernetes", "gives %s back", a.Name)
		w.must(w.Host.Delete(a))
	}
}

// stage is attach where nodes ask by themselves: a kubelet that runs has its node plugin ask,
// whatever else is attached, and give back what it has asked for.
func (w *World) stage(wanted bool, a, is *storagev1alpha1.DPUVolumeAttachment) {
	switch {
	case !w.runs(a.Spec.DPUNodeName):
	case wanted && is == nil:
		a.Spec.Requester = storagev1alpha1.RequesterNode
		w.Engine.Tell("node "+a.Spec.DPUNodeName, "asks for %s", a.Name)
		w.must(w.Host.Create(a))
	case wanted && is.Spec.Role == storagev1alpha1.RoleReplica && is.DeletionTimestamp.IsZero():
		promoted := is.DeepCopy()
		promoted.Spec.Role, promoted.Spec.Requester = storagev1alpha1.RolePrimary, storagev1alpha1.RequesterNode
		w.Engine.Tell("node "+a.Spec.DPUNodeName, "asks for %s", a.Name)
		w.must(w.Host.Update(promoted))
	case !wanted && is != nil && is.Spec.OfNode() && is.DeletionTimestamp.IsZero():
		w.Engine.Tell("node "+a.Spec.DPUNodeName, "gives %s back", a.Name)
		w.must(w.Host.Delete(is.DeepCopy()))
	}
}

// askFor asks for an attachment, or that the replica is becomes it, if nothing is in the way.
func (w *World) askFor(va *storagev1.VolumeAttachment, a, is *storagev1alpha1.DPUVolumeAttachment) {
	if is != nil && !is.DeletionTimestamp.IsZero() || !w.plan.Eager && len(w.primaries(a.Spec.DPUVolumeName)) > 0 {
		return
	}
	w.must(w.Host.Create(va))
	w.Engine.Tell("kubernetes", "asks for %s", a.Name)
	if is == nil {
		w.must(w.Host.Create(a))
		return
	}
	promoted := is.DeepCopy()
	promoted.Spec.Role = storagev1alpha1.RolePrimary
	w.must(w.Host.Update(promoted))
}

// detaches reports whether a host unmounts, or is out of service.
func (w *World) detaches(host string) bool {
	return w.runs(host) || !w.schedulable(host) && w.tainted(host)
}

// replicate keeps replicas of a volume that is attached, on all hosts that have nothing of it,
// and gives one up at times.
func (w *World) replicate(volume string) {
	if !w.plan.Replicas {
		return
	}
	attached := len(w.primaries(volume)) > 0
	for _, host := range w.hosts() {
		a := kubetest.DPUVolumeAttachment(volume, host)
		is, made := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, a.Namespace, a.Name)
		switch {
		case !made && attached && w.schedulable(host) && w.wanted[volume] != host:
			a.Spec.Role, a.Spec.Warmth = storagev1alpha1.RoleReplica, storagev1alpha1.WarmthPreEmulated
			w.Engine.Tell("kubernetes", "has replica %s made", a.Name)
			w.must(w.Host.Create(a))
		case made && is.Spec.Role == storagev1alpha1.RoleReplica && is.DeletionTimestamp.IsZero() && w.dice.IntN(60) == 0:
			w.Engine.Tell("kubernetes", "gives replica %s up", a.Name)
			w.must(w.Host.Delete(is.DeepCopy()))
		}
	}
}

func (w *World) tainted(host string) bool {
	node, found := cluster.Find[*corev1.Node](w.Host, "", host)
	return found && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// attachments are those of a volume in the host cluster.
func (w *World) attachments(volume string) []*storagev1alpha1.DPUVolumeAttachment {
	return slices.DeleteFunc(cluster.All[*storagev1alpha1.DPUVolumeAttachment](w.Host), func(a *storagev1alpha1.DPUVolumeAttachment) bool {
		return a.Spec.DPUVolumeName != volume
	})
}

// primaries are the attachments of a volume that are no replicas.
func (w *World) primaries(volume string) []*storagev1alpha1.DPUVolumeAttachment {
	return slices.DeleteFunc(w.attachments(volume), func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.Spec.Role == storagev1alpha1.RoleReplica })
}

// lacking says what is not as it is wanted, by volume: nothing of one that is.
func (w *World) lacking() map[string]string {
	out := map[string]string{}
	for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
		if reason := w.lacks(volume); reason != "" {
			out[volume] = reason
		}
	}
	return out
}

func (w *World) lacks(volume string) string {
	host := w.wanted[volume]
	for _, a := range w.primaries(volume) {
		if a.Spec.DPUNodeName != host {
			return "attachment " + a.Name + " does not go: " + a.Status.Message
		}
	}
	if host == "" {
		return ""
	}
	for _, a := range cluster.All[*storagev1alpha1.VolumeAttachment](w.DPU) {
		if a.VolumeName() == volume && w.card(a.Spec.NodeName).Shelved {
			return "VolumeAttachment " + a.Name + " is through " + a.Spec.NodeName + ", which has no power, and does not go" + w.ownerOf(a)
		}
	}
	a, found := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, kubetest.HostNamespace, host+"-"+volume)
	switch {
	case !found:
		return "attachment " + host + "-" + volume + " is not there"
	case !meta.IsStatusConditionTrue(a.Status.Conditions, storagev1alpha1.ConditionReady):
		return "attachment " + a.Name + " is not ready: " + a.Status.Message
	}
	if _, shown := w.cardIn(host).Shows(volume); !shown {
		return "attachment " + a.Name + " is ready, and its DPU does not show the volume"
	}
	if _, holds := w.Judge.Tenure(w.cardIn(host).Name, volume); !holds {
		return "attachment " + a.Name + " is ready, and its DPU does not hold the right to write"
	}
	return ""
}

// ownerOf is what the DPUVolumeAttachment of a VolumeAttachment says.
func (w *World) ownerOf(a *storagev1alpha1.VolumeAttachment) string {
	if owner, found := cluster.Find[*storagev1alpha1.DPUVolumeAttachment](w.Host, kubetest.HostNamespace, a.Name); found {
		return ": " + owner.Status.Message
	}
	return ""
}

// judgeProgress finds what is stuck. Everything is well by now, and an operator does what he
// is asked for: what still waits, waits for ever.
func (w *World) judgeProgress() {
	lacking := w.lacking()
	for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
		if reason := lacking[volume]; reason != "" {
			w.Judge.Find(judge.Stuck, "volume %s, wanted on %q: %s%s", volume, w.wanted[volume], reason, w.saidOf(w.wanted[volume]))
		}
	}
}

// saidOf is what is said of a host that fails over.
func (w *World) saidOf(host string) string {
	n, found := cluster.Find[*moorv1alpha1.DPUStorageNode](w.Host, "", host)
	if !found {
		return ""
	}
	if c := meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionFailover); c != nil && c.Status == metav1.ConditionTrue {
		return "; host " + host + " fails over: " + c.Message
	}
	return ""
}

// silence is how long an attachment may wait without a word while the program that has to
// say it can. A call that hangs for that long does not count.
const silence = 75 * time.Second

// names is what words have to name: an object that is looked at next, or a program that
// acts next, and which one.
var names = regexp.MustCompile(`\b(dpu-[abc]2*|(DPU)?Volume(Attachment)? \S+|SVVolumeAttachment \S+|WriterClaim \S+|DPUStorageNode \S+|CSIDriver \S+|host [abc]|node [abc])\b`)

// listen finds, all the time, attachments that wait and do not say for whom.
func (w *World) listen() {
	silent := map[types.UID]time.Duration{}
	w.Engine.Every(time.Second, func() {
		tells, hangs := w.tells()
		if !tells {
			clear(silent)
		}
		if !tells || hangs {
			return
		}
		for _, volume := range plan.VolumeNames[:w.plan.Volumes] {
			for _, a := range w.attachments(volume) {
				if !waits(a) || names.MatchString(w.Words(a)) {
					delete(silent, a.UID)
					continue
				}
				if silent[a.UID] += time.Second; silent[a.UID] == silence {
					w.Judge.Find(judge.Silent, "attachment %s has waited for %s, and says of that: %q", a.Name, silence, w.Words(a))
				}
			}
		}
	})
}

// waits reports whether something is wanted of an attachment that is not so.
func waits(a *storagev1alpha1.DPUVolumeAttachment) bool {
	if !a.DeletionTimestamp.IsZero() {
		return true
	}
	return a.Spec.Role != storagev1alpha1.RoleReplica && !meta.IsStatusConditionTrue(a.Status.Conditions, storagev1alpha1.ConditionReady)
}

// tells reports whether the program that writes the words runs and reaches both clusters, and
// whether one of its passes waits for an answer.
func (w *World) tells() (tells, hangs bool) {
	for _, name := range []string{"hosts", "hosts-2"} {
		if l := w.processOf(name).life; l != nil && l.Alive() && !l.Stalled() && !w.down[name] {
			busy := slices.ContainsFunc(l.loops, func(o *loop) bool { return o.busy })
			return !w.restoring && !w.down[w.Host.Name] && !w.down[w.DPU.Name], busy
		}
	}
	return false, false
}

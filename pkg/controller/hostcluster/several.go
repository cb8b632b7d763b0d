package hostcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// Behind a host cluster there can be several DPU clusters, each served by a controller of its
// own, so that none waits for another that is away. All of them see all volumes, attachments
// and snapshots, so what one does not see is not there. Which of them carries an object is on
// record in the object before anything is made of it, and never changes (decision 0046).

// Whose is in which DPU cluster an object is carried out.
type Whose int

const (
	// Ours is in the one that is served here.
	Ours Whose = iota
	// Theirs is in another one, whose controller sees to it.
	Theirs
	// Unchosen is in none yet, so nothing has been made of it anywhere.
	Unchosen
)

// Several reports whether there are other DPU clusters than the one that is served here.
func (c Clusters) Several() bool { return c.DPUCluster != "" }

// Reference names the DPU cluster in statuses: the DPUCluster of several, or as there was no
// choice the name that the flag gives it, and the namespace in it.
func (c Clusters) Reference() storagev1alpha1.ObjectReference {
	if namespace, name, ok := strings.Cut(c.DPUCluster, "/"); ok {
		return storagev1alpha1.ObjectReference{Namespace: namespace, Name: name}
	}
	return storagev1alpha1.ObjectReference{Name: c.DPUClusterName, Namespace: c.TargetNamespace}
}

// Volume says whose a DPUVolume is: by the finalizer that each DPU cluster has there before it makes
// anything, which stays when a status is lost or written over; or else by what is on record.
func (c Clusters) Volume(v *storagev1alpha1.DPUVolume) Whose {
	begun := slices.ContainsFunc(v.Finalizers, isOfDPUCluster)
	switch {
	case !c.Several() || slices.Contains(v.Finalizers, c.Finalizer(storagev1alpha1.FinalizerDPUVolume)):
		return Ours
	case begun:
		return Theirs
	case v.Status.State == nil || v.Status.State.DPUCluster == nil:
		return Unchosen
	case c.Recorded(v):
		return Ours
	}
	return Theirs
}

func isOfDPUCluster(finalizer string) bool {
	return strings.HasPrefix(finalizer, storagev1alpha1.FinalizerDPUCluster)
}

// Recorded reports whether it is on record that a DPUVolume is in the DPU cluster that is served here.
func (c Clusters) Recorded(v *storagev1alpha1.DPUVolume) bool {
	return v.Status.State != nil && v.Status.State.DPUCluster != nil && *v.Status.State.DPUCluster == c.Reference()
}

// FromAlone reports whether the record of a DPUVolume may be of the time when this DPU cluster was the
// only one: then it had the name that a flag gave it. That it is, its mirror has to say.
func (c Clusters) FromAlone(v *storagev1alpha1.DPUVolume) bool {
	return c.Volume(v) == Theirs && !slices.ContainsFunc(v.Finalizers, isOfDPUCluster) && v.Status.State.DPUCluster.Namespace == c.TargetNamespace
}

// OfVolume says whose an attachment or a snapshot of a DPUVolume is: by what is on record in
// it, or else as its volume, which stays as long as anything of it is attached.
func (c Clusters) OfVolume(ctx context.Context, recorded string, volume client.ObjectKey) (Whose, error) {
	switch {
	case !c.Several() || recorded == c.DPUCluster:
		return Ours, nil
	case recorded != "":
		return Theirs, nil
	}
	v := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, c.Host.Client, volume, v, client.UnsafeDisableDeepCopy)
	if err != nil || !found {
		return Unchosen, err
	}
	return c.Volume(v), nil
}

// Finalizer is what keeps an object until the DPU cluster that is served here has nothing of it. Where there are
// several, each has its own, with its namespace and name or the hex FNV-128 of them: of what is in all,
// one that is away would keep its copy for ever if another let the object go.
func (c Clusters) Finalizer(alone string) string {
	if !c.Several() {
		return alone
	}
	name := c.dotted()
	if len(name) > longestInFinalizer {
		name = kube.HashedName(name)
	}
	return storagev1alpha1.FinalizerDPUCluster + name
}

// longestInFinalizer is how much of a name a finalizer has room for, which has at most 63
// characters after its prefix, "dpu-cluster." among them.
const longestInFinalizer = 63 - len("dpu-cluster.")

// lease is DPF's name.
const lease = "snap-host-controller.dpu.nvidia.com"

// Lease is the name of that by which one of the replicas of the controller leads: DPF's, or one for each of
// several DPU clusters.
func (c Clusters) Lease() string {
	if !c.Several() {
		return lease
	}
	return lease + "." + c.dotted()
}

// label is the DPU cluster as a label value, and in types of conditions.
func (c Clusters) label() string { return kube.LabelValue(c.dotted()) }

func (c Clusters) dotted() string { return strings.ReplaceAll(c.DPUCluster, "/", ".") }

// In is the type of the condition that says of the DPU cluster which is served here what the one
// of this kind says of all. Where there is one, it is the same.
func (c Clusters) In(kind string) string {
	if !c.Several() {
		return kind
	}
	return kind + "." + c.label()
}

// First reports whether the DPU cluster that is served here is the first choice of something with this
// UID, of those of which a condition of this kind is True: rendezvous hashing, so that what is
// made spreads over all of them, and all controllers agree without a word. usable: it is one of them.
func (c Clusters) First(conditions []metav1.Condition, kind string, uid types.UID) (first, usable bool) {
	weight := func(where string) string {
		sum := sha256.Sum256([]byte(string(uid) + "/" + where))
		return hex.EncodeToString(sum[:])
	}
	best := ""
	for _, cond := range conditions {
		where, ok := strings.CutPrefix(cond.Type, kind+".")
		if !ok || cond.Status != metav1.ConditionTrue {
			continue
		}
		usable = usable || where == c.label()
		best = max(best, weight(where))
	}
	return usable && best == weight(c.label()), usable
}

// SumUp sets the condition of a kind from those of all DPU clusters: True if it is in one of them (one),
// or in all; else False with what each of the others says. Where there is one DPU cluster it
// does nothing.
func (c Clusters) SumUp(conditions kube.Conditions, kind string, one bool) {
	if !c.Several() {
		return
	}
	reason, words, yes := "", []string{}, false
	list := slices.Clone(*conditions.List)
	slices.SortFunc(list, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for _, cond := range list {
		where, ok := strings.CutPrefix(cond.Type, kind+".")
		switch {
		case !ok:
		case cond.Status == metav1.ConditionTrue:
			yes = true
		default:
			reason, words = cond.Reason, append(words, "DPU cluster "+where+": "+cond.Message)
		}
	}
	if len(words) == 0 || one && yes {
		conditions.True(kind)
		return
	}
	conditions.False(kind, reason, strings.Join(words, "; "))
}

// Listed are the DPU clusters of a status with the one that is served here among them, or not.
func (c Clusters) Listed(others []storagev1alpha1.ObjectReference, here bool) []storagev1alpha1.ObjectReference {
	var out []storagev1alpha1.ObjectReference
	if c.Several() {
		out = slices.DeleteFunc(slices.Clone(others), func(o storagev1alpha1.ObjectReference) bool { return o == c.Reference() })
	}
	if here {
		out = append(out, c.Reference())
	}
	slices.SortFunc(out, func(a, b storagev1alpha1.ObjectReference) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// PatchShared is kube.PatchStatus of an object whose status the controllers of several DPU clusters write.
func PatchShared[T client.Object](ctx context.Context, c Clusters, obj T, change func(T)) error {
	patch := kube.PatchStatus[T]
	if c.Several() {
		patch = kube.PatchStatusExact[T]
	}
	_, err := patch(ctx, c.Host.Client, obj, change)
	return err
}

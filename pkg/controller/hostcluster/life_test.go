package hostcluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/attachment"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/policy"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/vendor"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/volume"
)

// times are the times in an object.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// life is the host controller's reconcilers on two clusters in memory.
type life struct {
	*kubetest.Clusters
	t    *testing.T
	lost int
	runs []run
}

// run is one reconciler and the objects that it looks at.
type run struct {
	r     reconcile.Reconciler
	where func(l *life) client.Client
	list  func() client.ObjectList
}

func newLife(t *testing.T) *life {
	w := kubetest.New(t)
	l := &life{Clusters: w, t: t, runs: runsOf(w, hostclustertest.Clusters(w))}
	w.Host.Add(kubetest.DPUStorageNode("a"), kubetest.DPUStorageNode("b"), kubetest.DPUStorageVendor("vendor"), kubetest.DPUStoragePolicy("policy", "vendor"))
	w.DPU.Add(kubetest.StorageClass("vendor"), kubetest.CSIDriver("vendor", nil))
	return l
}

// runsOf are the reconcilers of one snap-host-controller.
func runsOf(w *kubetest.Clusters, c hostcluster.Clusters) []run {
	host, dpu := func(l *life) client.Client { return l.Host.Direct }, func(l *life) client.Client { return l.DPU.Direct }
	users := &attachment.Users{Users: podvolume.Users{Host: c.Host, Drivers: []string{kubetest.Driver}}}
	return []run{
		{&vendor.Reconciler{Clusters: c}, host, func() client.ObjectList { return &storagev1alpha1.DPUStorageVendorList{} }},
		{&policy.Reconciler{Clusters: c}, host, func() client.ObjectList { return &storagev1alpha1.DPUStoragePolicyList{} }},
		{&volume.Reconciler{Clusters: c, Clock: w.Clock}, host, func() client.ObjectList { return &storagev1alpha1.DPUVolumeList{} }},
		{&attachment.Reconciler{Clusters: c, Users: users}, host, func() client.ObjectList { return &storagev1alpha1.DPUVolumeAttachmentList{} }},
		{
			&detach.Reconciler{DPU: w.DPU.Cluster, Clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}, dpu,
			func() client.ObjectList { return &storagev1alpha1.VolumeAttachmentList{} },
		},
	}
}

// objects lists what a reconciler looks at.
func (l *life) objects(c client.Client, list client.ObjectList) []client.Object {
	l.t.Helper()
	if err := c.List(l.t.Context(), list); err != nil {
		l.t.Fatal(err)
	}
	var out []client.Object
	err := meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, o.(client.Object))
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// settle lets everybody work until a whole round changes nothing.
func (l *life) settle() {
	l.t.Helper()
	for range 60 {
		if !l.round() {
			return
		}
	}
	l.t.Fatal("the reconcilers never come to rest")
}

// round lets everybody work once; it reports whether anything changed or has to be tried again.
func (l *life) round() bool {
	l.t.Helper()
	before, failed := l.Writes(), false
	for _, run := range l.runs {
		for _, o := range l.objects(run.where(l), run.list()) {
			_, err := run.r.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			switch {
			case errors.Is(err, kubetest.ErrLost):
				l.lost++
				failed = true
			case apierrors.IsConflict(err):
				failed = true
			case err != nil:
				l.t.Fatalf("reconcile %T %s: %v", o, o.GetName(), err)
			}
		}
	}
	return l.play() || failed || l.Writes() != before
}

// play is one round of the DPU cluster's processes; it reports whether they
// changed anything.
func (l *life) play() bool {
	changed := false
	for _, o := range l.objects(l.DPU.Direct, &storagev1alpha1.StoragePolicyList{}) {
		changed = l.change(o, func(o client.Object) { hostclustertest.PlayPolicy(o.(*storagev1alpha1.StoragePolicy)) }) || changed
	}
	for _, o := range l.objects(l.DPU.Direct, &storagev1alpha1.VolumeAttachmentList{}) {
		changed = l.change(o, func(o client.Object) {
			a := o.(*storagev1alpha1.VolumeAttachment)
			claim, found := kubetest.Read(l.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject(a.VolumeName())})
			if !found {
				claim = nil
			}
			hostclustertest.PlayAttachment(a, claim)
		}) || changed
	}
	for _, o := range l.objects(l.DPU.Direct, &storagev1alpha1.VolumeList{}) {
		changed = l.change(o, func(o client.Object) { hostclustertest.PlayVolume(o.(*storagev1alpha1.Volume)) }) || changed
	}
	l.collect()
	return changed
}

func (l *life) change(o client.Object, play func(client.Object)) bool {
	l.t.Helper()
	after := o.DeepCopyObject().(client.Object)
	play(after)
	if cmp.Equal(o, after) {
		return false
	}
	kubetest.Change(l.DPU, o, play)
	return true
}

// collect is the garbage collector: a claim goes with its volume.
func (l *life) collect() {
	for _, o := range l.objects(l.DPU.Direct, &moorv1alpha1.WriterClaimList{}) {
		volume, found := kubetest.Read(l.DPU, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject(o.GetName())})
		if owners := o.GetOwnerReferences(); len(owners) == 1 && (!found || owners[0].UID != volume.UID) {
			l.DPU.Remove(o)
		}
	}
}

// picture is everything in both clusters, without what differs from run to run.
func (l *life) picture() []string {
	l.t.Helper()
	var out []string
	for _, list := range []client.ObjectList{&storagev1alpha1.DPUStorageVendorList{}, &storagev1alpha1.DPUStoragePolicyList{}, &storagev1alpha1.DPUVolumeList{}, &storagev1alpha1.DPUVolumeAttachmentList{}} {
		out = append(out, l.pictures(l.Host.Direct, list)...)
	}
	for _, list := range []client.ObjectList{&storagev1alpha1.StorageVendorList{}, &storagev1alpha1.StoragePolicyList{}, &storagev1alpha1.VolumeList{}, &storagev1alpha1.VolumeAttachmentList{}, &moorv1alpha1.WriterClaimList{}} {
		out = append(out, l.pictures(l.DPU.Direct, list)...)
	}
	sort.Strings(out)
	return out
}

func (l *life) pictures(c client.Client, list client.ObjectList) []string {
	l.t.Helper()
	var out []string
	for _, o := range l.objects(c, list) {
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		raw, err := json.Marshal(o)
		if err != nil {
			l.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%T %s", o, times.ReplaceAllString(string(raw), "TIME")))
	}
	return out
}

// steps is a volume's whole life: each is a change by a user.
func steps() []struct {
	name string
	do   func(l *life)
} {
	type step = struct {
		name string
		do   func(l *life)
	}
	remove := func(o client.Object) func(*life) { return func(l *life) { l.Host.Remove(o) } }
	add := func(o func() client.Object) func(*life) { return func(l *life) { l.Host.Add(o()) } }
	vol := func() client.Object { return kubetest.DPUVolume("vol", corev1.ReadWriteOnce) }
	onA, onB := func() client.Object { return kubetest.DPUVolumeAttachment("vol", "a") }, func() client.Object { return kubetest.DPUVolumeAttachment("vol", "b") }
	return []step{
		{"make", add(vol)},
		{"attach to a", add(onA)},
		{"attach to b, which waits", add(onB)},
		{"detach from a", remove(onA())},
		{"detach from b", remove(onB())},
		{"attach to a again", add(onA)},
		{"detach from a again", remove(onA())},
		{"remove", remove(vol())},
		{"remove the policy", remove(kubetest.DPUStoragePolicy("policy"))},
		{"remove the vendor", remove(kubetest.DPUStorageVendor("vendor"))},
	}
}

// live walks the steps and takes a picture after each, until enough has been
// seen.
func live(l *life, enough func(i int, picture []string) bool) {
	l.settle()
	for i, s := range steps() {
		s.do(l)
		l.settle()
		if enough(i, l.picture()) {
			return
		}
	}
}

func TestWholeLife(t *testing.T) {
	l := newLife(t)
	l.settle()
	want := []struct {
		phase  moorv1alpha1.ClaimPhase
		holder string
		epoch  int64
	}{
		{"", "", 0},
		{moorv1alpha1.ClaimGranted, "dpu-a", 1},
		{moorv1alpha1.ClaimGranted, "dpu-a", 1},
		{moorv1alpha1.ClaimGranted, "dpu-b", 2},
		{moorv1alpha1.ClaimFree, "", 2},
		{moorv1alpha1.ClaimGranted, "dpu-a", 3},
		{moorv1alpha1.ClaimFree, "", 3},
		{"", "", 0},
		{"", "", 0},
		{"", "", 0},
	}
	for i, s := range steps() {
		s.do(l)
		l.settle()
		claim, found := kubetest.Read(l.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vol")})
		got := moorv1alpha1.WriterClaimStatus{}
		if found && claim.Status != nil {
			got = *claim.Status
		}
		if got.Phase != want[i].phase || got.Holder != want[i].holder || got.Epoch != want[i].epoch {
			t.Errorf("%s: the claim is %+v, want %+v", s.name, got, want[i])
		}
		if want[i].holder != "" {
			a, _ := kubetest.Read(l.Host, kubetest.DPUVolumeAttachment("vol", want[i].holder[len("dpu-"):]))
			if a.Status.DPUAttached == nil || !*a.Status.DPUAttached || a.Status.Epoch != want[i].epoch {
				t.Errorf("%s: the holder's attachment is %+v", s.name, a.Status)
			}
		}
	}
	if left := l.picture(); len(left) != 0 {
		t.Errorf("left behind:\n%v", left)
	}
}

// TestCrash loses each write of a whole life in turn, without and with effect.
// Whatever was lost, the same comes out, and nothing is left behind.
func TestCrash(t *testing.T) {
	var want [][]string
	whole := newLife(t)
	live(whole, func(_ int, picture []string) bool {
		want = append(want, picture)
		return false
	})
	writes := whole.Writes()
	if writes < 40 {
		t.Fatalf("a life took %d writes only: the test would lose too few", writes)
	}
	for _, late := range []bool{false, true} {
		for k := 1; k <= writes; k++ {
			t.Run(fmt.Sprintf("late=%v/write=%d", late, k), func(t *testing.T) {
				t.Parallel()
				lose(t, k, late, want)
			})
		}
	}
}

// lose loses write k. Once that has left no trace, the rest of the life is the
// undisturbed one, for all that is known is in the picture.
func lose(t *testing.T, k int, late bool, want [][]string) {
	t.Helper()
	l := newLife(t)
	l.LoseWrite(k, late)
	live(l, func(i int, picture []string) bool {
		if diff := cmp.Diff(want[i], picture); diff != "" {
			t.Fatalf("write %d lost: after %q (-undisturbed +this):\n%s", k, steps()[i].name, diff)
		}
		return l.lost > 0
	})
	if l.lost != 1 {
		t.Fatalf("write %d: %d writes were lost, want 1", k, l.lost)
	}
}

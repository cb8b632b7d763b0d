package dpudrain

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// fixture is the two clusters, with host n1, whose DPU is dpu-n1, and volumes that its pods
// use. A pod that is evicted has to be ended.
type fixture struct {
	*kubetest.Clusters
	t *testing.T
	r *Reconciler
	// answer is what the API server says to an eviction; nil: it is done.
	answer func(pod string) error
	// asked are the pods whose eviction was asked for, in order.
	asked []string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{Clusters: kubetest.New(t), t: t}
	f.restart()
	f.Host.Add(kubetest.DPUStorageNode("n1"), kubetest.DPUStorageNode("n2"))
	f.wish(&moorv1alpha1.DrainRequest{Reason: "new BFB"})
	return f
}

// restart begins a process that remembers nothing.
func (f *fixture) restart() {
	host := f.Host.Cluster
	host.Client = interceptor.NewClient(f.Host.Client.(client.WithWatch), interceptor.Funcs{SubResourceCreate: f.evict})
	f.r = &Reconciler{
		Host: host, DPU: f.DPU.Cluster, Namespace: kubetest.HostNamespace, TargetNamespace: kubetest.DPUNamespace,
		Drivers: []string{kubetest.Driver, kubetest.SecondDriver}, Clock: f.Clock, Recorder: f.Recorder,
	}
}

// evict plays the API server.
func (f *fixture) evict(_ context.Context, _ client.Client, sub string, o, body client.Object, _ ...client.SubResourceCreateOption) error {
	eviction, ok := body.(*policyv1.Eviction)
	if !ok || sub != "eviction" || eviction.DeleteOptions == nil || *eviction.DeleteOptions.Preconditions.UID != o.GetUID() {
		f.t.Errorf("subresource %s of %s is made: %+v", sub, o.GetName(), body)
	}
	f.asked = append(f.asked, o.GetName())
	if f.answer != nil {
		if err := f.answer(o.GetName()); err != nil {
			return err
		}
	}
	return f.Host.Direct.Delete(f.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}})
}

// budget is the answer of an API server that a budget has refuse an eviction.
func budget(string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "Other", Message: "other"}, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget b needs 1 healthy pods and has 1 currently",
	})
	return err
}

func (f *fixture) wish(wish *moorv1alpha1.DrainRequest) {
	f.t.Helper()
	kubetest.Change(f.Host, kubetest.DPUStorageNode("n1"), func(n *moorv1alpha1.DPUStorageNode) { n.Spec.Drain = wish })
}

// pod adds a pod of host n1 with a volume, which its owner makes anew; "": it has none.
func (f *fixture) pod(name, owner string, change ...func(*corev1.Pod)) {
	f.t.Helper()
	p := kubetest.Pod(name, "n1", name)
	p.Finalizers = []string{"kubelet/ends"}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "o", Controller: ptr.To(true)}}
	}
	for _, c := range change {
		c(p)
	}
	f.Host.Add(p, kubetest.PVC(name, "pv-"+name), kubetest.PV("pv-"+name, name, "vol-"+name))
}

// ends has pods end that were evicted.
func (f *fixture) ends(names ...string) {
	f.t.Helper()
	for _, n := range names {
		kubetest.Change(f.Host, kubetest.Pod(n, "n1", n), func(p *corev1.Pod) { p.Finalizers = nil })
	}
}

// attach adds an attachment of a volume to a host.
func (f *fixture) attach(volume, node string, role storagev1alpha1.Role) {
	f.t.Helper()
	a := kubetest.DPUVolumeAttachment(volume, node)
	a.Spec.Role = role
	f.Host.Add(a)
}

// pass makes a pass, and returns what the condition says then.
func (f *fixture) pass() string {
	f.t.Helper()
	if err := f.try(); err != nil {
		f.t.Fatal(err)
	}
	return f.says()
}

func (f *fixture) try() error {
	_, err := f.r.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
	return err
}

func (f *fixture) says() string {
	n, _ := kubetest.Read(f.Host, kubetest.DPUStorageNode("n1"))
	c := meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionDrained)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason + ": " + c.Message
}

// told expects the pass to say all these words.
func (f *fixture) told(words ...string) {
	f.t.Helper()
	got := f.pass()
	for _, w := range words {
		if !strings.Contains(got, w) {
			f.t.Errorf("says %q, not %q", got, w)
		}
	}
}

//go:build api

package nodepolicy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

var clusters apiserver.Clusters

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m, &clusters)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hosts are what the account of the hosts is on hosts a and b, and without
// a node; and host a at the DPU cluster.
type hosts struct{ a, b, nowhere, remote client.Client }

// open applies what is deployed, makes hosts a and b and gets their tokens.
func open(t *testing.T) hosts {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "deploy", "host")
	must(t, kit.Apply(t.Context(), clusters.Host, dir, filepath.Join(dir, "attach-node")))
	for _, name := range []string{"a", "b"} {
		must(t, client.IgnoreAlreadyExists(clusters.Host.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		known := kubetest.DPUStorageNode(name)
		must(t, client.IgnoreAlreadyExists(clusters.Host.Create(t.Context(), known)))
	}
	token := func(t *testing.T, node string) string {
		return tokenOf(t, clusters.HostConfig, "snap-csi-plugin-node", node)
	}
	a := token(t, "a")
	out := hosts{
		a: as(t, clusters.HostConfig, clusters.Host, a), b: as(t, clusters.HostConfig, clusters.Host, token(t, "b")),
		nowhere: as(t, clusters.HostConfig, clusters.Host, token(t, "")), remote: as(t, clusters.DPUConfig, clusters.DPU, a),
	}
	inForce(t, out.a)
	return out
}

// tokenOf is one of an account, bound to the Node as that of a pod is.
func tokenOf(t *testing.T, server *rest.Config, account, node string) string {
	t.Helper()
	c, err := kubernetes.NewForConfig(server)
	must(t, err)
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}
	}
	got, err := c.CoreV1().ServiceAccounts(kit.Namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	must(t, err)
	return got.Status.Token
}

// as speaks to the server with the token, and knows its kinds from admin: a
// token that is refused could not even ask for them.
func as(t *testing.T, server *rest.Config, admin client.Client, token string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(server)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: admin.Scheme(), Mapper: admin.RESTMapper()})
	must(t, err)
	return c
}

// inForce waits until the API server enforces the policies, which takes it a
// moment after they were made.
func inForce(t *testing.T, a client.Client) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := a.Create(ctx, request("a", "probe", func(o *storagev1alpha1.DPUVolumeAttachment) { o.Spec.DPUNodeName = "b" }), client.DryRunAll)
		beat := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		also := a.Create(ctx, beat, client.DryRunAll)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "probe"}}
		third := a.Create(ctx, lease, client.DryRunAll)
		return apierrors.IsForbidden(err) && apierrors.IsForbidden(also) && apierrors.IsForbidden(third), nil
	})
	must(t, err)
}

// request is what the node asks for, changed.
func request(node, volume string, changes ...func(*storagev1alpha1.DPUVolumeAttachment)) *storagev1alpha1.DPUVolumeAttachment {
	o := kubetest.DPUVolumeAttachment(volume, node)
	o.Namespace, o.Spec.Requester = kit.Namespace, storagev1alpha1.RequesterNode
	for _, change := range changes {
		change(o)
	}
	return o
}

// there makes an attachment as an administrator, and removes it with the test.
func there(t *testing.T, o *storagev1alpha1.DPUVolumeAttachment) *storagev1alpha1.DPUVolumeAttachment {
	t.Helper()
	must(t, clusters.Host.Create(t.Context(), o))
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(clusters.Host.Delete(context.WithoutCancel(t.Context()), o)); err != nil {
			t.Error(err)
		}
	})
	return o
}

func replica(o *storagev1alpha1.DPUVolumeAttachment) {
	o.Spec.Role, o.Spec.Requester = storagev1alpha1.RoleReplica, ""
}

func users(o *storagev1alpha1.DPUVolumeAttachment) { o.Spec.Requester = "" }

func promote(o *storagev1alpha1.DPUVolumeAttachment) {
	o.Spec.Role, o.Spec.Requester = storagev1alpha1.RolePrimary, storagev1alpha1.RequesterNode
}

// patch writes the difference that change makes, as the node plugin does.
func patch(t *testing.T, c client.Client, o *storagev1alpha1.DPUVolumeAttachment, change func(*storagev1alpha1.DPUVolumeAttachment)) error {
	before := o.DeepCopy()
	change(o)
	return c.Patch(t.Context(), o, client.MergeFrom(before))
}

// refused expects a refusal with the words; "" that there is none.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("refused: %v", err)
	case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
		t.Errorf("got %v, want a refusal with %q", err, words)
	case words != "" && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err):
		t.Errorf("refused otherwise than as forbidden: %v", err)
	}
}

func TestAttachments(t *testing.T) {
	h := open(t)
	type object = storagev1alpha1.DPUVolumeAttachment
	const others, shape, own = "may not touch an attachment of node b", "role Primary and requester Node only", "all that a host may change"
	for i, tc := range []struct {
		name  string
		act   func(volume string) error
		words string
	}{
		{"asks for its own", func(v string) error { return h.a.Create(t.Context(), request("a", v)) }, ""},
		{"asks, role said", func(v string) error {
			return h.a.Create(t.Context(), request("a", v, func(o *object) { o.Spec.Role = storagev1alpha1.RolePrimary }))
		}, ""},
		{"asks under a long name", func(v string) error {
			return h.a.Create(t.Context(), request("a", v+strings.Repeat("x", 252), func(o *object) { o.Name = "va-" + strings.Repeat("0f", 16) }))
		}, ""},
		{"asks for another node", func(v string) error { return h.a.Create(t.Context(), request("b", v)) }, others},
		{"asks from no node", func(v string) error { return h.nowhere.Create(t.Context(), request("a", v)) }, "must be bound to its node"},
		{"asks as a user", func(v string) error { return h.a.Create(t.Context(), request("a", v, users)) }, shape},
		{"asks as the controller", func(v string) error {
			return h.a.Create(t.Context(), request("a", v, func(o *object) { o.Spec.Requester = storagev1alpha1.RequesterController }))
		}, shape},
		{"asks for a replica", func(v string) error { return h.a.Create(t.Context(), request("a", v, replica)) }, shape},
		{"takes another's name", func(v string) error {
			return h.a.Create(t.Context(), request("a", v, func(o *object) { o.Name = "b-" + v }))
		}, "the name must be a-"},
		{"takes a hashed name", func(v string) error {
			return h.a.Create(t.Context(), request("a", v, func(o *object) { o.Name = "va-" + strings.Repeat("0f", 16) }))
		}, "the name must be a-"},
		{"holds on by a finalizer", func(v string) error {
			return h.a.Create(t.Context(), request("a", v, func(o *object) { o.Finalizers = []string{"x.example.com/y"} }))
		}, "no finalizers"},
		{"calls it a replica", func(v string) error {
			return h.a.Create(t.Context(), request("a", v, func(o *object) { o.Labels = map[string]string{storagev1alpha1.LabelReplicaOf: v} }))
		}, "no finalizers"},
		{"promotes its replica", func(v string) error { return patch(t, h.a, there(t, request("a", v, replica)), promote) }, ""},
		{"promotes it for the controller", func(v string) error {
			return patch(t, h.a, there(t, request("a", v, replica)), func(o *object) { o.Spec.Role = storagev1alpha1.RolePrimary })
		}, shape},
		{"promotes another's replica", func(v string) error { return patch(t, h.a, there(t, request("b", v, replica)), promote) }, others},
		{"promotes, and more", func(v string) error {
			return patch(t, h.a, there(t, request("a", v, replica)), func(o *object) { promote(o); o.Finalizers = []string{"x.example.com/y"} })
		}, own},
		{"promotes, and relabels", func(v string) error {
			return patch(t, h.a, there(t, request("a", v, replica)), func(o *object) { promote(o); o.Labels = map[string]string{"x": "y"} })
		}, own},
		{"takes the finalizers off", func(v string) error {
			o := there(t, request("a", v))
			must(t, patch(t, clusters.Host, o, func(o *object) { o.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment} }))
			err := patch(t, h.a, o.DeepCopy(), func(o *object) { o.Finalizers = nil })
			must(t, patch(t, clusters.Host, o, func(o *object) { o.Finalizers = nil }))
			return err
		}, own},
		{"says that it is shown", func(v string) error {
			o := there(t, request("a", v))
			yes := true
			o.Status.DPUAttached = &yes
			return h.a.Status().Update(t.Context(), o)
		}, "dpuvolumeattachments/status"},
		{"gives its own back", func(v string) error { return h.a.Delete(t.Context(), there(t, request("a", v))) }, ""},
		{"gives its replica back", func(v string) error { return h.a.Delete(t.Context(), there(t, request("a", v, replica))) }, ""},
		{"takes a user's away", func(v string) error { return h.a.Delete(t.Context(), there(t, request("a", v, users))) }, "no attachment of a user"},
		{"takes another's away", func(v string) error { return h.a.Delete(t.Context(), there(t, request("b", v))) }, others},
		{"takes it away from no node", func(v string) error { return h.nowhere.Delete(t.Context(), there(t, request("a", v))) }, "must be bound to its node"},
		{"takes all away", func(string) error {
			return h.a.DeleteAllOf(t.Context(), &object{}, client.InNamespace(kit.Namespace))
		}, "cannot deletecollection"},
		{"the other host does the same", func(v string) error { return h.b.Create(t.Context(), request("b", v)) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, tc.act(fmt.Sprintf("vol-%d", i)), tc.words) })
	}
}

func TestHeartbeats(t *testing.T) {
	h := open(t)
	beat := func(c client.Client, name string, change func(*moorv1alpha1.DPUStorageNode)) error {
		n := &moorv1alpha1.DPUStorageNode{}
		must(t, clusters.Host.Get(t.Context(), client.ObjectKey{Name: name}, n))
		before := n.DeepCopy()
		change(n)
		return c.Status().Patch(t.Context(), n, client.MergeFrom(before))
	}
	alive := func(n *moorv1alpha1.DPUStorageNode) {
		next := int64(1)
		if n.Status.Host != nil {
			next += n.Status.Host.Sequence
		}
		n.Status.Host = &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: next}, MaxVolumes: 16}
	}
	dead := func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU = &moorv1alpha1.DPUState{Host: &moorv1alpha1.HostObservation{Alive: false}}
	}
	ready := func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Conditions = []metav1.Condition{{Type: "Failover", Status: "True", Reason: "X", LastTransitionTime: metav1.Now()}}
	}
	moved := func(n *moorv1alpha1.DPUStorageNode) { n.Status.Topology = map[string]string{"rack": "9"} }
	const only = "writes status.host of its DPUStorageNode, and nothing else"
	for _, tc := range []struct {
		name  string
		act   func() error
		words string
	}{
		{"beats", func() error { return beat(h.a, "a", alive) }, ""},
		{"beats again", func() error { return beat(h.a, "a", alive) }, ""},
		{"beats for another", func() error { return beat(h.a, "b", alive) }, "host a may not beat for node b"},
		{"beats from no node", func() error { return beat(h.nowhere, "a", alive) }, "must be bound to its node"},
		{"speaks for its DPU", func() error { return beat(h.a, "a", dead) }, only},
		{"writes conditions", func() error { return beat(h.a, "a", ready) }, only},
		{"says where its DPU is", func() error { return beat(h.a, "a", moved) }, only},
		{"makes another's", func() error {
			return h.a.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
		}, "may not beat for node"},
		{"takes another DPU", func() error {
			n := kubetest.DPUStorageNode("a")
			return h.a.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"dpuName":"dpu-b"}}`)))
		}, "cannot patch resource"},
		{"deletes one", func() error { return h.a.Delete(t.Context(), kubetest.DPUStorageNode("b")) }, "cannot delete resource"},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, tc.act(), tc.words) })
	}
	must(t, clusters.Host.Delete(t.Context(), kubetest.DPUStorageNode("a")))
	for _, forged := range []moorv1alpha1.DPUStorageNodeSpec{{DPUName: "dpu-a"}, {DPUCluster: "dpf/where-none-fences-it"}} {
		refused(t, h.a.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: forged}), "which DPU sits in a host is for the installer to say")
	}
	refused(t, h.a.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}), "")
}

// TestLeases: a host renews the Lease of its own heartbeat, and writes no other.
func TestLeases(t *testing.T) {
	h := open(t)
	lease := func(node string, change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: kit.Namespace, Name: moorv1alpha1.LeaseName(node), Labels: map[string]string{moorv1alpha1.LabelHeartbeat: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: moorv1alpha1.GroupVersion.String(), Kind: "DPUStorageNode", Name: node, UID: "u"}},
		}}
		l.Spec.HolderIdentity = &node
		if change != nil {
			change(l)
		}
		return l
	}
	renew := func(c client.Client, node string, change func(*coordinationv1.Lease)) error {
		l := &coordinationv1.Lease{}
		must(t, clusters.Host.Get(t.Context(), client.ObjectKeyFromObject(lease(node, nil)), l))
		at := metav1.NowMicro()
		l.Spec.RenewTime = &at
		if change != nil {
			change(l)
		}
		return c.Update(t.Context(), l)
	}
	another := "b"
	must(t, clusters.Host.Create(t.Context(), lease("b", nil)))
	echo := lease("b", func(l *coordinationv1.Lease) { l.Name = "snap-host-controller-echo" })
	must(t, clusters.Host.Create(t.Context(), echo))
	for _, tc := range []struct {
		name  string
		act   func() error
		words string
	}{
		{"makes it for another", func() error {
			return h.a.Create(t.Context(), lease("a", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &another }))
		}, "holds its Lease itself"},
		{"holds on by a finalizer", func() error {
			return h.a.Create(t.Context(), lease("a", func(l *coordinationv1.Lease) { l.Finalizers = []string{"x.example.com/y"} }))
		}, "no finalizers"},
		{"has another owner", func() error {
			return h.a.Create(t.Context(), lease("a", func(l *coordinationv1.Lease) { l.OwnerReferences[0].Name = "b" }))
		}, "no owner but its DPUStorageNode"},
		{"makes it from no node", func() error { return h.nowhere.Create(t.Context(), lease("a", nil)) }, "must be bound to its node"},
		{"makes it", func() error { return h.a.Create(t.Context(), lease("a", nil)) }, ""},
		{"reads it", func() error {
			return h.a.Get(t.Context(), client.ObjectKeyFromObject(lease("a", nil)), &coordinationv1.Lease{})
		}, ""},
		{"renews it", func() error { return renew(h.a, "a", nil) }, ""},
		{"gives it to another", func() error {
			return renew(h.a, "a", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &another })
		}, "holds its Lease itself"},
		{"renews another's", func() error { return renew(h.a, "b", nil) }, "host a may not write Lease dpustoragenode.b"},
		{"renews another's as its own", func() error {
			own := "a"
			return renew(h.a, "b", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &own })
		}, "host a may not write Lease dpustoragenode.b"},
		{"speaks for the controller", func() error {
			at := metav1.NowMicro()
			echo.Spec.RenewTime = &at
			return h.a.Update(t.Context(), echo)
		}, "host a may not write Lease snap-host-controller-echo"},
		{"takes the leadership", func() error {
			return h.a.Create(t.Context(), lease("a", func(l *coordinationv1.Lease) { l.Name = "snap-host-controller.dpu.nvidia.com" }))
		}, "may not write Lease"},
		{"beats for a kubelet", func() error {
			return h.a.Create(t.Context(), lease("a", func(l *coordinationv1.Lease) { l.Namespace, l.Name = corev1.NamespaceNodeLease, "a" }))
		}, "cannot create resource"},
		{"deletes it", func() error { return h.a.Delete(t.Context(), lease("a", nil)) }, "cannot delete resource"},
		{"the other host does the same", func() error { return renew(h.b, "b", nil) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, tc.act(), tc.words) })
	}
}

// TestOutOfReach: what a host has no business with at all.
func TestOutOfReach(t *testing.T) {
	h := open(t)
	claim := &moorv1alpha1.WriterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "vol"}, Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol"}}
	must(t, clusters.DPU.Create(t.Context(), claim))
	claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-b", Attachment: "b-vol", Epoch: 1}
	must(t, clusters.DPU.Status().Update(t.Context(), claim))
	free := claim.DeepCopy()
	free.Status.Phase, free.Status.Holder, free.Status.Attachment = moorv1alpha1.ClaimFree, "", ""
	for name, tc := range map[string]struct {
		act   func() error
		words string
	}{
		"reads a claim":           {func() error { return h.remote.Get(t.Context(), client.ObjectKeyFromObject(claim), claim.DeepCopy()) }, "nauthorized"},
		"frees a claim":           {func() error { return h.remote.Status().Update(t.Context(), free) }, "nauthorized"},
		"lists the DPUs' volumes": {func() error { return h.remote.List(t.Context(), &storagev1alpha1.VolumeList{}) }, "nauthorized"},
		"makes a VolumeAttachment": {func() error {
			return h.remote.Create(t.Context(), &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "x"}})
		}, "nauthorized"},
		"changes a volume": {func() error {
			return h.a.Create(t.Context(), withNamespace(kubetest.DPUVolume("vol", corev1.ReadWriteOnce)))
		}, "cannot create resource"},
		"reads the secrets": {func() error { return h.a.List(t.Context(), &corev1.SecretList{}, client.InNamespace(kit.Namespace)) }, "cannot list resource"},
		"makes a pod for its right": {func() error {
			return h.a.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "x"}})
		}, "cannot create resource"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, tc.act(), tc.words) })
	}
	now := claim.DeepCopy()
	must(t, clusters.DPU.Get(t.Context(), client.ObjectKeyFromObject(claim), now))
	if now.Status.Holder != "dpu-b" || now.Status.Epoch != 1 {
		t.Errorf("the claim is %+v", now.Status)
	}
}

func withNamespace(o *storagev1alpha1.DPUVolume) *storagev1alpha1.DPUVolume {
	o.Namespace = kit.Namespace
	return o
}

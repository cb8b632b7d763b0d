package failover

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// fixture is host "a" with a single-writer volume "vol" that DPU "dpu-a" shows
// under epoch 4, used by pod "app"; and host "b", which only beats. Every
// change of a claim goes past a censor.
type fixture struct {
	*kubetest.Clusters
	t         *testing.T
	f         *Reconciler
	orderly   *detach.Reconciler
	censoring sync.Mutex
	claims    map[string]moorv1alpha1.WriterClaimStatus
	hosts     []string
	// lost is when the DPU lost all that it had in memory.
	lost time.Time
	// fenced is when each claim went to Fencing.
	fenced map[string]time.Time
	// renewed is when dpu-a renewed its lease last.
	renewed time.Time
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{Clusters: kubetest.New(t), t: t, claims: map[string]moorv1alpha1.WriterClaimStatus{}, fenced: map[string]time.Time{}}
	for _, name := range []string{"a", "b"} {
		s.addHost(name)
	}
	s.addVolume("vol", "a")
	s.addPod("app", "a", "vol")
	s.restart()
	s.AfterWrite(s.censor)
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	return s
}

// restart makes new instances, which remember nothing.
func (s *fixture) restart() {
	s.f = New(Options{
		Host: s.Host.Cluster, DPU: s.DPU.Cluster, Namespace: kubetest.HostNamespace, TargetNamespace: kubetest.DPUNamespace,
		Drivers: []string{kubetest.Driver}, Observer: nodehealth.New(s.Clock, 0, 0), Clock: s.Clock, Recorder: s.Recorder, Budget: DefaultBudget,
	})
	s.orderly = &detach.Reconciler{DPU: s.DPU.Cluster, Host: s.Host.Cluster, Clock: s.Clock, TargetNamespace: kubetest.DPUNamespace, Recorder: s.Recorder}
}

// change makes an instance anew that has the same heartbeats and other options.
func (s *fixture) change(change func(*Options)) {
	o := s.f.o
	change(&o)
	s.f = New(o)
}

func (s *fixture) addHost(name string) {
	n := kubetest.DPUStorageNode(name)
	n.Status = moorv1alpha1.DPUStorageNodeStatus{
		Host: &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}},
		DPU:  &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}, SNAPReady: true, Host: &moorv1alpha1.HostObservation{Alive: true}},
	}
	s.Host.Add(n, kubetest.Node(name, map[string]string{corev1.LabelTopologyZone: "z"}))
	s.hosts = append(s.hosts, name)
}

// addVolume makes a volume that fails over, attached to the host.
func (s *fixture) addVolume(name, host string) {
	v := kubetest.DPUVolume(name, corev1.ReadWriteOnce)
	v.Spec.Replication = &storagev1alpha1.Replication{MaxShares: 2, MaxMountReplicaCount: 1, Failover: storagev1alpha1.FailoverFence}
	a := kubetest.DPUVolumeAttachment(name, host)
	a.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
	s.Host.Add(v, a)
	m := kubetest.VolumeAttachment(a.Name, name, "dpu-"+host)
	m.Spec.Epoch, m.Spec.VolumeAttachmentRef = 4, &storagev1alpha1.ObjectRef{Name: a.Name}
	m.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment, storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim}
	m.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: kubetest.HostNamespace + "/" + a.Name}
	m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 4}
	claim := kubetest.WriterClaim(name, "dpu-"+host, a.Name, 4)
	there := &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject(name)}
	there.Spec.Volume.CSIReference.CSIDriverName = "vendor"
	s.claims[name] = *claim.Status
	sv := &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject(a.Name)}
	sv.Finalizers = []string{"external-attacher/vendor"}
	sv.Spec.NodeName = "dpu-" + host
	s.DPU.Add(m, there, claim, sv)
}

// addPod makes a pod on the host that uses the volumes.
func (s *fixture) addPod(name, host string, volumes ...string) {
	for _, v := range volumes {
		if pv := kubetest.PV("pv-"+v, v, v); !s.Host.Has(&corev1.PersistentVolume{}, pv.Name) {
			s.Host.Add(kubetest.PVC(v, pv.Name), pv)
		}
	}
	s.Host.Add(kubetest.Pod(name, host, volumes...))
}

func (s *fixture) pass(host string) error {
	_, err := s.f.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: host}})
	if err != nil {
		return err
	}
	_, err = s.orderly.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: host + "-vol"}})
	return err
}

func (s *fixture) mustPass() {
	s.t.Helper()
	if err := s.pass("a"); err != nil {
		s.t.Fatal(err)
	}
}

// later is a pass when what is waited for is told.
func (s *fixture) later() {
	s.t.Helper()
	s.Step(kube.StatusGrace)
	s.mustPass()
}

// live lets seconds pass in which those named beat: a host with its kubelet, a
// DPU, or a kubelet alone. Both API servers work.
func (s *fixture) live(seconds int, who ...string) {
	s.t.Helper()
	nodes, beaten := map[string]*moorv1alpha1.DPUStorageNode{}, map[string]bool{}
	node := func(name string) *moorv1alpha1.DPUStorageNode {
		if nodes[name] == nil {
			nodes[name], _ = kubetest.Read(s.Host, kubetest.DPUStorageNode(name))
		}
		return nodes[name]
	}
	for range seconds / 5 {
		s.Step(5 * time.Second)
		s.f.o.Observer.SelfHeartbeat(nodehealth.HostCluster)
		s.f.o.Observer.SelfHeartbeat(nodehealth.DPUCluster)
		for _, w := range who {
			name, dpu := strings.CutPrefix(w, "dpu-")
			name, alone := strings.CutPrefix(name, "kubelet-")
			if !dpu {
				s.f.o.Observer.Kubelet(name, s.Clock.Now())
			}
			if alone {
				continue
			}
			if beaten[name] = true; dpu {
				node(name).Status.DPU.Sequence++
			} else {
				node(name).Status.Host.Sequence++
			}
		}
		for _, name := range s.hosts {
			s.f.o.Observer.Observe(node(name))
		}
	}
	for name := range beaten { // no pass was made meanwhile
		s.host(name, func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Sequence, n.Status.Host.Sequence = node(name).Status.DPU.Sequence, node(name).Status.Host.Sequence
		})
	}
}

func (s *fixture) host(name string, change func(*moorv1alpha1.DPUStorageNode)) {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.DPUStorageNode(name), change)
}

func (s *fixture) core(name string, change func(*corev1.Node)) {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.Node(name, nil), change)
}

// seenDead lets the DPU of a host see it dead.
func (s *fixture) seenDead(name string) {
	s.Step(400 * time.Millisecond) // the shortest silence that it listens to first
	s.host(name, func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no answer"}
	})
}

// ready is what the kubelet says of its Node.
func ready(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

func (s *fixture) notReady(name string) {
	s.core(name, func(n *corev1.Node) { ready(n).Status = corev1.ConditionUnknown })
}

func (s *fixture) mirror(change func(*storagev1alpha1.VolumeAttachment)) {
	s.t.Helper()
	kubetest.Change(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"), change)
}

// replica makes the attachment one: its host has not asked for the volume.
func (s *fixture) replica() {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) {
		a.Spec.Role = storagev1alpha1.RoleReplica
	})
}

// retire is what the DPU does when its claim is being fenced.
func (s *fixture) retire() {
	s.t.Helper()
	if c := s.claim(); c.Status.Phase != moorv1alpha1.ClaimFencing {
		s.t.Fatalf("the claim is %s, the DPU has no cause to retire", c.Status.Phase)
	}
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
}

func (s *fixture) claim() *moorv1alpha1.WriterClaim {
	s.t.Helper()
	c, _ := kubetest.Read(s.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vol")})
	return c
}

func (s *fixture) wantPhase(want moorv1alpha1.ClaimPhase) {
	s.t.Helper()
	if c := s.claim().Status; c.Phase != want || c.Epoch != 4 {
		s.t.Fatalf("the claim is %+v, want %s", c, want)
	}
}

func (s *fixture) hasPod(name string) bool {
	s.t.Helper()
	_, found := kubetest.Read(s.Host, kubetest.Pod(name, ""))
	return found
}

func (s *fixture) tainted(name string) bool {
	s.t.Helper()
	n, _ := kubetest.Read(s.Host, kubetest.Node(name, nil))
	return tainted(n)
}

// says is the condition Failover, as "status/reason" and its message.
func (s *fixture) says() (state, words string) {
	s.t.Helper()
	n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	c := meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionFailover)
	if c == nil {
		return "none", ""
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason), c.Message
}

func (s *fixture) wantSays(state string, words ...string) {
	s.t.Helper()
	have, message := s.says()
	if have != state {
		s.t.Fatalf("Failover is %s (%s), want %s", have, message, state)
	}
	for _, w := range words {
		if !strings.Contains(message, w) {
			s.t.Errorf("Failover says %q, without %q", message, w)
		}
	}
}

// vouch annotates the vendor's driver and lets snap-controller notice that
// the attachment ends.
func (s *fixture) vouch() {
	s.DPU.Add(&storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "vendor", Annotations: map[string]string{storagev1alpha1.AnnotationRevokes: "true"}},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
	})
}

func (s *fixture) noticed() {
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.StorageDetaching = true })
}

func (s *fixture) sv() (*storagev1alpha1.SVVolumeAttachment, bool) {
	return kubetest.Read(s.DPU, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")})
}

// revoked is the vendor's ControllerUnpublish done: its attacher says so, and lets go.
func (s *fixture) revoked() {
	s.t.Helper()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.Revocation = &storagev1alpha1.StorageRevocation{AttachmentUID: m.UID, NodeID: "node-a", Time: metav1.NewTime(s.Clock.Now())}
	})
	s.requestStripped()
}

// requestStripped takes the attacher's finalizer off.
func (s *fixture) requestStripped() {
	s.t.Helper()
	sv, found := s.sv()
	if !found || sv.DeletionTimestamp.IsZero() {
		s.t.Fatal("the vendor was not asked to revoke")
	}
	sv.Finalizers = nil
	if err := s.DPU.Direct.Update(s.t.Context(), sv); err != nil {
		s.t.Fatal(err)
	}
}

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
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	world "github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

const driver = "csi.snap.nvidia.com"

// stage is host "a" with a single-writer volume "vol" that DPU "dpu-a" shows
// under epoch 4, used by pod "app"; and host "b", which only beats. Every
// change of a claim goes past a censor.
// now is when the tests begin.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type stage struct {
	*world.World
	t         *testing.T
	f         *Failover
	orderly   *detach.Reconciler
	clock     *clocktesting.FakePassiveClock
	recorder  *record.FakeRecorder
	censoring sync.Mutex
	claims    map[string]moorv1alpha1.WriterClaimStatus
	hosts     []string
	// renewed is when dpu-a renewed its lease last.
	renewed time.Time
}

func newStage(t *testing.T) *stage {
	w := world.New(t)
	s := &stage{World: w, t: t, clock: clocktesting.NewFakePassiveClock(now), claims: map[string]moorv1alpha1.WriterClaimStatus{}}
	for _, name := range []string{"a", "b"} {
		s.addHost(name)
	}
	s.addVolume("vol", "a")
	s.addPod("app", "a", "vol")
	s.restart()
	w.AfterWrite(s.censor)
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	return s
}

// restart makes new instances, which remember nothing.
func (s *stage) restart() {
	s.recorder = record.NewFakeRecorder(1000)
	s.f = &Failover{
		Host: kube.Cluster{Client: s.Clusters.Host.Client, Live: s.Host}, DPU: kube.Cluster{Client: s.Clusters.DPU.Client, Live: s.DPU}, Namespace: world.Namespace, TargetNamespace: world.Target,
		Driver: driver, Observer: nodehealth.New(s.clock, 0, 0), Clock: s.clock, Recorder: s.recorder, Budget: DefaultBudget,
	}
	s.orderly = &detach.Reconciler{DPU: s.f.DPU, Host: s.f.Host, Clock: s.clock, TargetNamespace: world.Target, Recorder: s.recorder}
}

func (s *stage) addHost(name string) {
	n := world.Node(name)
	n.Status = moorv1alpha1.DPUStorageNodeStatus{
		Host: &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}},
		DPU:  &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}, Host: &moorv1alpha1.HostObservation{Alive: true}},
	}
	s.AddHost(n, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	s.hosts = append(s.hosts, name)
}

// addVolume makes a volume that fails over, attached to the host.
func (s *stage) addVolume(name, host string) {
	v := world.Volume(name, corev1.ReadWriteOnce)
	v.Spec.Replication = &storagev1alpha1.Replication{MaxShares: 2, MaxMountReplicaCount: 1, Failover: storagev1alpha1.FailoverFence}
	a := world.Attachment(name, host)
	a.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
	s.AddHost(v, a)
	m := &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror(a.Name), Spec: storagev1alpha1.VolumeAttachmentSpec{
		NodeName: "dpu-" + host, Epoch: 4, Source: storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Name: name}},
		VolumeAttachmentRef: &storagev1alpha1.ObjectRef{Name: a.Name},
	}}
	m.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment, storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim}
	m.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: world.Namespace + "/" + a.Name}
	m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: true, Epoch: 4}
	status := moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-" + host, Attachment: a.Name, Epoch: 4}
	there := &storagev1alpha1.Volume{ObjectMeta: world.Mirror(name)}
	there.Spec.Volume.CSIReference.CSIDriverName = "vendor"
	s.AddDPU(m, there, &moorv1alpha1.WriterClaim{ObjectMeta: world.Mirror(name), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: name}, Status: &status})
	s.claims[name] = status
	sv := &storagev1alpha1.SVVolumeAttachment{ObjectMeta: world.Mirror(a.Name)}
	sv.Finalizers = []string{"external-attacher/vendor"}
	sv.Spec.NodeName = "dpu-" + host
	if err := s.DPU.Create(s.t.Context(), sv); err != nil {
		s.t.Fatal(err)
	}
}

// addPod makes a pod on the host that uses the volumes.
func (s *stage) addPod(name, host string, volumes ...string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: host}}
	for _, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v},
		}})
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + v}}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + v}}
		pv.Spec.ClaimRef, pv.Status.Phase = &corev1.ObjectReference{Namespace: "default", Name: v}, corev1.VolumeBound
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v}
		if _, found := world.Read(s.World, s.Host, &corev1.PersistentVolume{ObjectMeta: pv.ObjectMeta}); !found {
			s.AddHost(claim, pv)
		}
	}
	s.AddHost(p)
}

func (s *stage) pass(host string) error {
	_, err := s.f.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: host}})
	if err != nil {
		return err
	}
	_, err = s.orderly.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: world.Target, Name: host + "-vol"}})
	return err
}

func (s *stage) mustPass() {
	s.t.Helper()
	if err := s.pass("a"); err != nil {
		s.t.Fatal(err)
	}
}

// live lets seconds pass in which those named beat: a host with its kubelet, a
// DPU, or a kubelet alone. Both API servers work.
func (s *stage) live(seconds int, who ...string) {
	s.t.Helper()
	for range seconds / 5 {
		s.clock.SetTime(s.clock.Now().Add(5 * time.Second))
		s.f.Observer.SelfHeartbeat(nodehealth.HostCluster)
		s.f.Observer.SelfHeartbeat(nodehealth.DPUCluster)
		for _, w := range who {
			name, dpu := strings.CutPrefix(w, "dpu-")
			name, alone := strings.CutPrefix(name, "kubelet-")
			if !dpu {
				s.f.Observer.Kubelet(name, s.clock.Now())
			}
			if alone {
				continue
			}
			s.host(name, func(n *moorv1alpha1.DPUStorageNode) {
				if dpu {
					n.Status.DPU.Sequence++
				} else {
					n.Status.Host.Sequence++
				}
			})
		}
		for _, name := range s.hosts {
			n, _ := world.Read(s.World, s.Host, world.Node(name))
			s.f.Observer.Observe(n)
		}
	}
}

func (s *stage) host(name string, change func(*moorv1alpha1.DPUStorageNode)) {
	s.t.Helper()
	world.Change(s.World, s.Host, world.Node(name), change)
}

func (s *stage) core(name string, change func(*corev1.Node)) {
	s.t.Helper()
	world.Change(s.World, s.Host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, change)
}

// seenDead lets the DPU of a host see it dead.
func (s *stage) seenDead(name string) {
	s.host(name, func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no answer"}
	})
}

func (s *stage) notReady(name string) {
	s.core(name, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
}

func (s *stage) mirror(change func(*storagev1alpha1.VolumeAttachment)) {
	s.t.Helper()
	world.Change(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}, change)
}

// replica makes the attachment one: its host has not asked for the volume.
func (s *stage) replica() {
	s.t.Helper()
	world.Change(s.World, s.Host, world.Attachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) {
		a.Spec.Role = storagev1alpha1.RoleReplica
	})
}

// retire is what the DPU does when its claim is being fenced.
func (s *stage) retire() {
	s.t.Helper()
	if c := s.claim(); c.Status.Phase != moorv1alpha1.ClaimFencing {
		s.t.Fatalf("the claim is %s, the DPU has no cause to retire", c.Status.Phase)
	}
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
}

func (s *stage) claim() *moorv1alpha1.WriterClaim {
	s.t.Helper()
	c, _ := world.Read(s.World, s.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: world.Mirror("vol")})
	return c
}

func (s *stage) wantPhase(want moorv1alpha1.ClaimPhase) {
	s.t.Helper()
	if c := s.claim().Status; c.Phase != want || c.Epoch != 4 {
		s.t.Fatalf("the claim is %+v, want %s", c, want)
	}
}

func (s *stage) hasPod(name string) bool {
	s.t.Helper()
	_, found := world.Read(s.World, s.Host, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	return found
}

func (s *stage) tainted(name string) bool {
	s.t.Helper()
	n, _ := world.Read(s.World, s.Host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return tainted(n)
}

// says is the condition Failover, as "status/reason" and its message.
func (s *stage) says() (state, words string) {
	s.t.Helper()
	n, _ := world.Read(s.World, s.Host, world.Node("a"))
	c := meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionFailover)
	if c == nil {
		return "none", ""
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason), c.Message
}

func (s *stage) wantSays(state string, words ...string) {
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

// story is the reasons of the events so far.
func (s *stage) story() string {
	var out []string
	for {
		select {
		case e := <-s.recorder.Events:
			out = append(out, strings.Fields(e)[1])
		default:
			return strings.Join(out, " ")
		}
	}
}

// vouch annotates the vendor's driver and lets snap-controller notice that
// the attachment ends.
func (s *stage) vouch() {
	s.AddDPU(&storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "vendor", Annotations: map[string]string{storagev1alpha1.AnnotationRevokes: "true"}},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
	})
}

func (s *stage) noticed() {
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.StorageDetaching = true })
}

func (s *stage) sv() (*storagev1alpha1.SVVolumeAttachment, bool) {
	return world.Read(s.World, s.DPU, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: world.Mirror("a-vol")})
}

// revoked is the vendor's ControllerUnpublish done.
func (s *stage) revoked() {
	s.t.Helper()
	sv, found := s.sv()
	if !found || sv.DeletionTimestamp.IsZero() {
		s.t.Fatal("the vendor was not asked to revoke")
	}
	sv.Finalizers = nil
	if err := s.DPU.Update(s.t.Context(), sv); err != nil {
		s.t.Fatal(err)
	}
}

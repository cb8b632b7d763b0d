package revocation

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

const (
	dpu        = "dpu-1"
	attachment = "dpu-1-v"
	pvName     = "pvc-1"
	spec       = `
provisioningModes: [Dynamic]
volumeCreation: {capacity: 1Gi}
volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}
volumeRevocation: {podTemplate: {spec: {containers: [{name: c, image: i, args: ["{{ handle }}", "{{ attachment.uid }}", "{{ attachment.epoch }}", "{{ node.metadata.name }}", "{{ params.array }}"]}]}}, timeout: 1m}
`
)

// fixture is a volume that is staged on a DPU which does not answer, whose right to write is being taken. does is what
// revocation pods do: "ok" by default, "fail", "hang", "vanish", "evicted", "taken" (deleted, and ends well), or "here" (on
// the DPU itself).
type fixture struct {
	*kubetest.Cluster
	t    *testing.T
	req  *Requests
	rev  *Reconciler
	does string
	made int
}

// newFixture has the request attached. Nothing is being taken yet.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{Cluster: kubetest.NewPods(t), t: t}
	s.restart()
	s.AfterWrite(func(verb string, o client.Object) {
		if _, is := o.(*corev1.Pod); is && verb == "create" {
			s.made++
		}
	})
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	a := kubetest.VolumeAttachment(attachment, "v", dpu)
	a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim, storagev1alpha1.FinalizerDPUAttachment}
	a.Spec.Epoch, a.Status.StorageAttached, a.Status.DPU.Attached = 7, true, true
	pv := kubetest.VendorPV(pvName, "v-pvc", "p", corev1.PersistentVolumeReclaimDelete)
	s.Add(p, pv, kubetest.Node(dpu, nil), kubetest.Node("n", nil), a, kubetest.WriterClaim("v", dpu, attachment, 7), request())
	s.settle()
	s.Add(s.staging("staging", kubetest.AttachmentUID(attachment), moorv1alpha1.PodStagingStaged))
	return s
}

// request is the SVVolumeAttachment as snap-controller makes it.
func request() *storagev1alpha1.SVVolumeAttachment {
	return &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject(attachment), Spec: storagev1.VolumeAttachmentSpec{
		NodeName: dpu, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(pvName)},
	}}
}

// restart has another instance go on, which remembers nothing.
func (s *fixture) restart() {
	store := &compiled.Store{}
	s.req = &Requests{Cluster: s.Cluster.Cluster, Provisioners: store, Clock: s.Clock, Recorder: s.Recorder}
	s.rev = &Reconciler{Cluster: s.Cluster.Cluster, Pods: helper.Pods{Cluster: s.Cluster.Cluster, Root: "/root"}, Provisioners: store, Clock: s.Clock, Recorder: s.Recorder}
}

// staging is one of the volume on the DPU.
func (s *fixture) staging(name string, attachmentUID types.UID, phase moorv1alpha1.PodStagingPhase) *moorv1alpha1.PodStaging {
	return &moorv1alpha1.PodStaging{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: moorv1alpha1.PodStagingSpec{ProvisionerName: "p", VolumeName: pvName, NodeName: dpu, User: moorv1alpha1.StagingUser{
			Kind: moorv1alpha1.AttachmentUser, Namespace: kubetest.DPUNamespace, Name: attachment, UID: attachmentUID,
		}},
		Status: moorv1alpha1.PodStagingStatus{Phase: phase},
	}
}

// stagingPod is a staging pod of the staging, made at a time.
func (s *fixture) stagingPod(of, name string, phase corev1.PodPhase, at time.Time) *corev1.Pod {
	p, _ := kubetest.Read(s.Cluster, &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: of}})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(at),
			Labels: map[string]string{moorv1alpha1.LabelPodStaging: string(p.UID), moorv1alpha1.LabelHelperPhase: string(pods.Staging)},
		},
		Spec: corev1.PodSpec{NodeName: dpu}, Status: corev1.PodStatus{Phase: phase},
	}
}

// taken has a failover take the right to write: the claim is in Fencing, the attachment ends, snap-controller knows, and the
// request is deleted.
func (s *fixture) taken() *fixture {
	s.t.Helper()
	kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing })
	s.Remove(s.attachment())
	kubetest.Change(s.Cluster, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true })
	s.Remove(request())
	return s
}

func (s *fixture) claim() *moorv1alpha1.WriterClaim {
	return &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("v")}
}

func (s *fixture) attachment() *storagev1alpha1.VolumeAttachment {
	a, _ := kubetest.Read(s.Cluster, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject(attachment)})
	return a
}

// asked is the request; nil if it was let go.
func (s *fixture) asked() *storagev1alpha1.SVVolumeAttachment {
	if sv, found := kubetest.Read(s.Cluster, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject(attachment)}); found {
		return sv
	}
	return nil
}

// all are the PodRevocations that are there.
func (s *fixture) all() []moorv1alpha1.PodRevocation {
	var all moorv1alpha1.PodRevocationList
	if err := s.Direct.List(s.t.Context(), &all); err != nil {
		s.t.Fatal(err)
	}
	return all.Items
}

// helpers are the revocation pods that are there.
func (s *fixture) helpers() []corev1.Pod {
	var all corev1.PodList
	if err := s.Direct.List(s.t.Context(), &all, client.HasLabels{moorv1alpha1.LabelPodRevocation}); err != nil {
		s.t.Fatal(err)
	}
	return all.Items
}

// ask is one pass of the request.
func (s *fixture) ask() error {
	_, err := s.req.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(request())})
	return err
}

// pass is one of each reconciler.
func (s *fixture) pass() error {
	if err := s.ask(); err != nil {
		return err
	}
	for _, r := range s.all() {
		if _, err := s.rev.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&r)}); err != nil {
			return err
		}
	}
	return nil
}

// world lets scheduler and kubelet do their part, and reports whether there was any.
func (s *fixture) world() (did bool) {
	for _, pod := range s.helpers() {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		noted := slices.ContainsFunc(s.all(), func(r moorv1alpha1.PodRevocation) bool { return r.Status.Pod != nil && r.Status.Pod.UID == pod.UID })
		if ended || !noted || s.does == "hang" {
			continue
		}
		did = true
		if s.does == "vanish" {
			s.Remove(&pod)
			continue
		}
		if s.does == "taken" {
			kubetest.Change(s.Cluster, &pod, func(p *corev1.Pod) { p.Finalizers = []string{"test/kept"} })
			s.Remove(&pod)
		}
		kubetest.Change(s.Cluster, &pod, s.kubelet)
	}
	return did
}

func (s *fixture) kubelet(p *corev1.Pod) {
	p.Spec.NodeName, p.Status.Phase = "n", corev1.PodSucceeded
	code := int32(0)
	switch s.does {
	case "fail":
		p.Status.Phase, code = corev1.PodFailed, 3
	case "evicted":
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	case "here":
		p.Spec.NodeName = dpu
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
}

// settle goes on until nothing is written any more. It reports whether a write was lost.
func (s *fixture) settle() (lost bool) {
	s.t.Helper()
	for range 100 {
		before := s.Writes()
		if err := s.pass(); err != nil {
			switch {
			case strings.Contains(err.Error(), kubetest.ErrLost.Error()):
				lost = true
				s.restart()
			case !apierrors.IsConflict(err):
				s.t.Fatal(err)
			}
			continue
		}
		if !s.world() && s.Writes() == before {
			return lost
		}
	}
	s.t.Fatalf("does not settle: %+v, %+v", s.all(), s.asked())
	return lost
}

// wantWord checks that the storage's word is there for the very attachment, and that nothing else is left.
func (s *fixture) wantWord() {
	s.t.Helper()
	a := s.attachment()
	if w := a.Status.Revocation; w == nil || w.AttachmentUID != a.UID || w.NodeID != dpu {
		s.t.Errorf("the word is %+v; request %+v, revocations %+v", w, s.asked(), s.all())
	}
	s.wantNothingLeft()
}

// wantNone checks that there is no word, and that the request waits with words.
func (s *fixture) wantNone(words string) {
	s.t.Helper()
	if w := s.attachment().Status.Revocation; w != nil {
		s.t.Errorf("there is a word: %+v", w)
	}
	sv := s.asked()
	if sv == nil || sv.Status.DetachError == nil || !strings.Contains(sv.Status.DetachError.Message, words) {
		s.t.Errorf("%+v, want %q", sv, words)
	}
}

func (s *fixture) wantNothingLeft() {
	s.t.Helper()
	if s.asked() != nil || len(s.all()) > 0 || len(s.helpers()) > 0 {
		s.t.Errorf("left: %+v, %+v, %d pods", s.asked(), s.all(), len(s.helpers()))
	}
}

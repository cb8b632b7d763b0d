//go:build api

package main

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

const revoking = `
apiVersion: pav.albertofaria.github.io/v1alpha1
kind: PavProvisioner
metadata: {name: share}
spec:
  provisioningModes: [Dynamic]
  volumeCreation: {capacity: 1Gi}
  volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}
  volumeRevocation: {podTemplate: {spec: {containers: [{name: c, image: i, args: ["{{ attachment.uid }}", "{{ attachment.epoch }}"]}]}}}
`

// seizure is an attachment whose right to write is being taken.
type seizure struct {
	*apiserver.One
	t *testing.T
}

// revokes: with the rights that are deployed, the storage's word is asked for by the deletion of an
// SVVolumeAttachment, and written of the very attachment once the pod has succeeded elsewhere; nothing is left.
func revokes(t *testing.T, s seizure) {
	s.must(s.Create(t.Context(), object(t, revoking)))
	s.await("the driver vouches", func(ctx context.Context) bool {
		d := &storagev1.CSIDriver{}
		return s.Get(ctx, client.ObjectKey{Name: "share"}, d) == nil && d.Annotations[storagev1alpha1.AnnotationRevokes] == "true"
	})
	s.attach()
	sv := &storagev1alpha1.SVVolumeAttachment{ObjectMeta: meta("dpu-1-v")}
	s.await("the request is attached", func(ctx context.Context) bool {
		return s.Get(ctx, client.ObjectKeyFromObject(sv), sv) == nil && sv.Status.Attached
	})
	s.seize(sv)

	pod := s.pod()
	a := s.attachment()
	if got := pod.Spec.Containers[0].Args; len(got) != 2 || got[0] != string(a.UID) || got[1] != "7" {
		t.Errorf("it is told %q", got)
	}
	s.refusesOthers(pod)
	s.saysNothingElse()
	if a.Status.Revocation != nil {
		t.Errorf("there is a word before the pod has ended: %+v", a.Status.Revocation)
	}
	s.must(s.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{ObjectMeta: pod.ObjectMeta, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}))
	s.must(change(t.Context(), s, pod, "status", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}}}}
	}))
	s.await("the word is written, and nothing is left", func(ctx context.Context) bool {
		var revocations moorv1alpha1.PodRevocationList
		var pods corev1.PodList
		s.must(s.List(ctx, &revocations))
		s.must(s.List(ctx, &pods))
		gone := kube.IsNotFound(s.Get(ctx, client.ObjectKeyFromObject(sv), sv))
		return gone && len(revocations.Items) == 0 && len(pods.Items) == 0
	})
	if w := s.attachment().Status.Revocation; w == nil || w.AttachmentUID != a.UID || w.NodeID != "dpu-1" {
		t.Errorf("the word is %+v", w)
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: kit.Namespace, Name: name}
}

// attach makes a volume, and all that there is of it while DPU dpu-1 has it.
func (s seizure) attach() {
	s.t.Helper()
	ctx := s.t.Context()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta("v-pvc"), Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(""), VolumeName: "pv", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	s.must(s.Create(ctx, pvc))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: pvc.Spec.Resources.Requests, AccessModes: pvc.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:               &corev1.ObjectReference{Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "share", VolumeHandle: "h"}},
	}}
	a := &storagev1alpha1.VolumeAttachment{ObjectMeta: meta("dpu-1-v"), Spec: storagev1alpha1.VolumeAttachmentSpec{
		NodeName: "dpu-1", FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: "vf"}, Epoch: 7,
		Source: storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Kind: "Volume", APIVersion: "storage.dpu.nvidia.com/v1alpha1", Name: "v", Namespace: kit.Namespace}},
	}}
	a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim, storagev1alpha1.FinalizerDPUAttachment}
	claim := &moorv1alpha1.WriterClaim{ObjectMeta: meta("v"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v"}}
	for _, o := range []client.Object{
		pv, a, claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dpu-1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&storagev1alpha1.SVVolumeAttachment{ObjectMeta: meta("dpu-1-v"), Spec: storagev1.VolumeAttachmentSpec{NodeName: "dpu-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}},
	} {
		s.must(s.Create(ctx, o))
	}
	s.must(change(ctx, s, a, "status", func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.StorageAttached, a.Status.DPU.Attached = true, true
	}))
	s.must(change(ctx, s, claim, "status", func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-1", Attachment: a.Name, AttachmentUID: a.UID, Epoch: 7}
	}))
}

// seize ends the attachment, as a failover does.
func (s seizure) seize(sv *storagev1alpha1.SVVolumeAttachment) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.Delete(ctx, s.attachment()))
	s.must(change(ctx, s, s.attachment(), "status", func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true }))
	s.must(s.Delete(ctx, sv))
}

func (s seizure) attachment() *storagev1alpha1.VolumeAttachment {
	s.t.Helper()
	a := &storagev1alpha1.VolumeAttachment{}
	s.must(s.Get(s.t.Context(), client.ObjectKey{Namespace: kit.Namespace, Name: "dpu-1-v"}, a))
	return a
}

// pod is the revocation pod, once it is there.
func (s seizure) pod() *corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	s.await("the pod is made", func(ctx context.Context) bool {
		s.must(s.List(ctx, &pods, client.HasLabels{moorv1alpha1.LabelPodRevocation}))
		return len(pods.Items) == 1
	})
	return &pods.Items[0]
}

// refusesOthers: not even an administrator makes such a pod, makes a pod one, or has it run something else.
func (s seizure) refusesOthers(pod *corev1.Pod) {
	s.t.Helper()
	ctx := s.t.Context()
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "forged", Labels: pod.Labels}, Spec: *pod.Spec.DeepCopy()}
	plain := forged.DeepCopy()
	plain.Name, plain.Labels = "plain", nil
	s.must(s.Create(ctx, plain))
	for what, err := range map[string]error{
		"made by another":    s.Create(ctx, forged),
		"made of another":    change(ctx, s, plain.DeepCopy(), "", func(p *corev1.Pod) { p.Labels = pod.Labels }),
		"with another image": change(ctx, s, pod.DeepCopy(), "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }),
		"for another":        change(ctx, s, pod.DeepCopy(), "", func(p *corev1.Pod) { p.Labels[moorv1alpha1.LabelPodRevocation] = "other" }),
	} {
		if !apierrors.IsForbidden(err) {
			s.t.Errorf("a pod %s: %v", what, err)
		}
	}
	s.must(change(ctx, s, pod, "", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }))
	s.must(s.Delete(ctx, plain, client.GracePeriodSeconds(0)))
}

// saysNothingElse: the account of the controller writes that word alone into an attachment.
func (s seizure) saysNothingElse() {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig("pod-provisioner-controller"))
	s.must(err)
	c, err := client.New(config, client.Options{Scheme: s.Scheme()})
	s.must(err)
	for what, how := range map[string]func(*storagev1alpha1.VolumeAttachment){
		"speaks for the DPU": func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 7 },
		"fences": func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: a.UID, Epoch: 7, Time: metav1.Now()}
		},
		"speaks of another attachment": func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.Revocation = &storagev1alpha1.StorageRevocation{AttachmentUID: "other", NodeID: "dpu-1", Time: metav1.Now()}
		},
	} {
		if err := change(s.t.Context(), c, s.attachment(), "status", how); !apierrors.IsForbidden(err) {
			s.t.Errorf("%s: %v", what, err)
		}
	}
}

// change changes an object, or a subresource of it.
func change[T client.Object](ctx context.Context, c client.Client, o T, sub string, how func(T)) error {
	before := o.DeepCopyObject().(T)
	how(o)
	if sub != "" {
		return c.SubResource(sub).Patch(ctx, o, client.MergeFrom(before))
	}
	return c.Patch(ctx, o, client.MergeFrom(before))
}

func (s seizure) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s seizure) await(what string, is func(context.Context) bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) { return is(ctx), nil })
	if err != nil {
		sv, revocations := &storagev1alpha1.SVVolumeAttachment{}, &moorv1alpha1.PodRevocationList{}
		_ = s.Get(s.t.Context(), types.NamespacedName{Namespace: kit.Namespace, Name: "dpu-1-v"}, sv)
		_ = s.List(s.t.Context(), revocations)
		s.t.Fatalf("%s: %v; %+v, %+v", what, err, sv.Status, revocations.Items)
	}
}

package staging

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

const (
	volume = "pv"
	name   = "s"

	bare = `
provisioningModes: [Dynamic]
volumeCreation: {capacity: 1Gi}
volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: "{{ node.metadata.name }}-{{ handle }}"}]}}, timeout: 1m, nodeSelector: {disk: fast}}
`
	both = `
provisioningModes: [Dynamic, Static]
volumeValidation: {volumeModes: [Filesystem, Block], accessModes: [ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod]}
volumeCreation: {capacity: 1Gi}
volumeStaging: {podTemplate: {metadata: {namespace: secrets}, spec: {containers: [{name: c, image: stages}]}}, timeout: 1m}
volumeUnstaging: {podTemplate: {spec: {containers: [{name: c, image: unstages}]}}, timeout: 1m}
`
)

// over is both, with a staging pod that uses a claim.
var over = strings.Replace(both, "[{name: c, image: stages}]", "[{name: c, image: stages}], volumes: [{name: v, persistentVolumeClaim: {claimName: below}}]", 1)

// behavior is what the pods of a phase do: "ok" is the default; "stay", "kept" (its own containers end, and it runs on),
// "spoilt" (they fail, and it runs on), "fail", "hang", "vanish", or what they leave at /pav/volume: "none", "block" of the size of the volume, "small".
type behavior map[pods.Phase]string

type fixture struct {
	*kubetest.Cluster
	r     *Reconciler
	t     *testing.T
	does  behavior
	made  []string // phases of the pods that were made, in their order
	clear bool     // the node clears what is left
	// unstages: there is an unstaging pod, which has to find what the staging pod has left.
	unstages bool
}

func newFixture(t *testing.T, spec string, does behavior) *fixture {
	t.Helper()
	c := kubetest.NewPods(t)
	s := &fixture{Cluster: c, t: t, does: does, clear: true, unstages: strings.Contains(spec, "image: unstages")}
	s.restart()
	c.AfterWrite(func(verb string, o client.Object) {
		if pod, is := o.(*corev1.Pod); is && verb == "create" {
			s.made = append(s.made, pod.Labels[moorv1alpha1.LabelHelperPhase])
		}
	})
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	c.Add(p, kubetest.Node("n", map[string]string{"disk": "fast"}), kubetest.Node("m", nil))
	claim := kubetest.PVC("claim", volume)
	c.Add(claim, &moorv1alpha1.PodVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec:       moorv1alpha1.PodVolumeSpec{ProvisionerName: "p", Claim: runtime.RawExtension{Raw: []byte("{}")}, Class: runtime.RawExtension{Raw: []byte("{}")}},
		Status:     moorv1alpha1.PodVolumeStatus{Phase: moorv1alpha1.PodVolumeCreated, Handle: "h"},
	})
	pv := kubetest.PV(volume, "claim", "h")
	pv.Spec.CSI.Driver, pv.Spec.ClaimRef.UID = "p", claim.UID
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if d := does[pods.Staging]; d == "block" || d == "small" {
		pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	}
	c.Add(pv)
	for name, node := range map[string]string{"user": "n", "other": "m", "beside": "n"} {
		pod := kubetest.Pod(name, node, "claim")
		pod.UID = types.UID(name)
		c.Add(pod)
	}
	s.made = nil
	return s
}

// restart has another instance go on, which remembers nothing.
func (s *fixture) restart() {
	s.r = &Reconciler{
		Cluster: s.Cluster.Cluster, Pods: helper.Pods{Cluster: s.Cluster.Cluster, Root: "/root", HoldImage: "hold"}, Provisioners: &compiled.Store{}, Clock: s.Clock, Recorder: s.Recorder,
	}
}

// static has a person have made the volume.
func (s *fixture) static() {
	s.Remove(&moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}})
}

// staged is a staging of the volume on a node for a pod.
func stagingOf(name, node, pod string) *moorv1alpha1.PodStaging {
	return &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.PodStagingSpec{
		ProvisionerName: "p", VolumeName: volume, NodeName: node, User: moorv1alpha1.StagingUser{Namespace: metav1.NamespaceDefault, Name: pod, UID: types.UID(pod)},
	}}
}

func (s *fixture) pass(name string) (ctrl.Result, error) {
	return s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
}

func (s *fixture) get(name string) *moorv1alpha1.PodStaging {
	p, found := kubetest.Read(s.Cluster, &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if !found {
		return nil
	}
	return p
}

func (s *fixture) list() []corev1.Pod {
	var all corev1.PodList
	if err := s.Direct.List(s.t.Context(), &all, client.HasLabels{moorv1alpha1.LabelHelperPhase}); err != nil {
		s.t.Fatal(err)
	}
	return all.Items
}

// world lets kubelet and pod-provisioner (node) do their part, and reports whether there was any.
func (s *fixture) world(name string) (did bool) {
	p := s.get(name)
	if p == nil {
		return false
	}
	all := s.list()
	for i := range all {
		pod := &all[i]
		does := s.does[pods.Phase(pod.Labels[moorv1alpha1.LabelHelperPhase])]
		if p.Status.Pod == nil || p.Status.Pod.UID != pod.UID || pod.Status.Phase != "" || does == "hang" {
			continue
		}
		if did = true; does == "vanish" {
			s.Remove(pod)
			continue
		}
		report := left(does)
		report.PodUID = pod.UID
		kubetest.Change(s.Cluster, pod, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			switch does {
			case "stay":
				p.Status.Phase, report.Ready = corev1.PodRunning, true
			case "kept", "spoilt":
				code := int32(0)
				if does == "spoilt" {
					code = 7
				}
				p.Status.Phase = corev1.PodRunning
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
			case "fail":
				p.Status.Phase, report.Error = corev1.PodFailed, "words of "+p.Labels[moorv1alpha1.LabelHelperPhase]
			}
		})
		kubetest.Change(s.Cluster, s.get(name), func(p *moorv1alpha1.PodStaging) { p.Status.Report = report })
	}
	if p = s.get(name); s.clear && clears(p) && len(s.list()) == 0 {
		report := &moorv1alpha1.StagingReport{Cleared: true}
		if p.Status.Pod != nil {
			report.PodUID = p.Status.Pod.UID
		}
		if undoes := p.Status.Phase == isReverting || p.Status.Phase == isUnstaging; undoes && s.unstages && !slices.Contains(s.made, string(pods.Unstaging)) {
			s.t.Errorf("/pav is cleared before the unstaging pod: %+v", p.Status)
		}
		kubetest.Change(s.Cluster, p, func(p *moorv1alpha1.PodStaging) { p.Status.Report = report })
		return true
	}
	return did
}

// clears is when a node clears /pav, if no pod has it: nothing is needed of it any more, and no pod is
// about to be made.
func clears(p *moorv1alpha1.PodStaging) bool {
	pod, report := p.Status.Pod, p.Status.Report
	if !slices.Contains([]moorv1alpha1.PodStagingPhase{isBroken, isReverting, isFailed, isUnstaging, isUnstaged}, p.Status.Phase) || p.Status.Directory == "" || pod != nil && pod.UID == "" {
		return false
	}
	return report == nil || !report.Cleared || pod != nil && pod.UID != report.PodUID
}

func left(does string) *moorv1alpha1.StagingReport {
	switch does {
	case "none":
		return &moorv1alpha1.StagingReport{}
	case "block":
		return &moorv1alpha1.StagingReport{VolumeMode: corev1.PersistentVolumeBlock, SizeBytes: 1 << 30}
	case "small":
		return &moorv1alpha1.StagingReport{VolumeMode: corev1.PersistentVolumeBlock, SizeBytes: 1 << 29}
	}
	return &moorv1alpha1.StagingReport{VolumeMode: corev1.PersistentVolumeFilesystem}
}

// settle goes on until nothing is written any more. It reports whether a write was lost.
func (s *fixture) settle(name string) (lost bool) {
	s.t.Helper()
	for range 100 {
		before := s.Writes()
		if _, err := s.pass(name); err != nil {
			switch {
			case strings.Contains(err.Error(), kubetest.ErrLost.Error()):
				lost = true
				s.restart()
			case !apierrors.IsConflict(err):
				s.t.Fatal(err)
			}
			continue
		}
		if !s.world(name) && s.Writes() == before {
			return lost
		}
	}
	s.t.Fatalf("does not settle: %+v", s.get(name))
	return lost
}

// ran are the phases whose pods were made; the same one after another count as one.
func (s *fixture) ran() string { return strings.Join(slices.Compact(slices.Clone(s.made)), " ") }

func (s *fixture) delete(name string) { s.Remove(s.get(name)) }

// wants checks the phase; empty: it is gone, and no pod is left.
func (s *fixture) wants(name string, phase moorv1alpha1.PodStagingPhase, words string) {
	s.t.Helper()
	p := s.get(name)
	switch {
	case p == nil && phase == "":
		if n := len(s.list()); n != 0 {
			s.t.Fatalf("%d pods are left", n)
		}
	case p == nil || p.Status.Phase != phase || !strings.Contains(p.Status.Message, words):
		s.t.Fatalf("got %+v, want %s: %s", p, phase, words)
	}
}

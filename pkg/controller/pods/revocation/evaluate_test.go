package revocation

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// hanging is a fixture whose revocation pod runs.
func hanging(t *testing.T) *fixture {
	t.Helper()
	s := newFixture(t).taken()
	s.does = "hang"
	s.settle()
	return s
}

func (s *fixture) pv() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName}}
}

// says has the template of the provisioner be told these words.
func (s *fixture) says(args ...string) {
	s.t.Helper()
	kubetest.Change(s.Cluster, &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, func(p *pavv1alpha1.PavProvisioner) {
		p.Generation++
		if len(args) == 0 {
			p.Spec.VolumeRevocation = nil
			return
		}
		quoted := make([]string, len(args))
		for i, a := range args {
			quoted[i] = `"` + a + `"`
		}
		p.Spec.VolumeRevocation.PodTemplate.Raw = []byte(`{"spec": {"containers": [{"name": "c", "image": "i", "args": [` + strings.Join(quoted, ", ") + `]}]}}`)
	})
}

// evaluates is what the templates come to now.
func (s *fixture) evaluates(r *moorv1alpha1.PodRevocation) (evaluated, error) {
	s.t.Helper()
	seen, _, err := s.rev.look(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	if seen.provisioner, err = s.rev.Provisioners.Find(s.t.Context(), s.Live, "p"); err != nil {
		s.t.Fatal(err)
	}
	return s.rev.evaluate(s.t.Context(), r, seen)
}

// TestEvaluateFails: what no other try mends is said in words, and no pod is made of it.
func TestEvaluateFails(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture, *moorv1alpha1.PodRevocation)
		words  string
	}{
		"the volume is gone":    {func(s *fixture, _ *moorv1alpha1.PodRevocation) { s.Remove(s.pv()) }, "PersistentVolume pvc-1 is gone"},
		"the volume is another": {func(_ *fixture, r *moorv1alpha1.PodRevocation) { r.Spec.VolumeUID = "another" }, "or is another one by now"},
		"the volume is bound to none": {func(s *fixture, _ *moorv1alpha1.PodRevocation) {
			kubetest.Change(s.Cluster, s.pv(), func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil })
		}, "is not bound to a claim"},
		"there is no template":      {func(s *fixture, _ *moorv1alpha1.PodRevocation) { s.says() }, "has no volumeRevocation any more"},
		"a template that cannot be": {func(s *fixture, _ *moorv1alpha1.PodRevocation) { s.says("{{ missing.field }}") }, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := hanging(t)
			r := s.all()[0].DeepCopy()
			tc.change(s, r)
			e, err := s.evaluates(r)
			if err != nil || e.err == nil || !strings.Contains(e.err.Error(), tc.words) {
				t.Errorf("%v, %v; want %q", e.err, err, tc.words)
			}
		})
	}
}

// TestEvaluateShows: the template is shown the claim if it is the one that the volume is bound to, and the DPU's node
// though it is gone.
func TestEvaluateShows(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   []string
	}{
		"claim and node are there": {func(*fixture) {}, []string{"gold", dpu}},
		"the node is gone":         {func(s *fixture) { s.Remove(kubetest.Node(dpu, nil)) }, []string{"gold", dpu}},
		"the claim is gone":        {func(s *fixture) { s.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}) }, []string{"none", dpu}},
		"the claim is another": {func(s *fixture) {
			kubetest.Change(s.Cluster, s.pv(), func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "another" })
		}, []string{"none", dpu}},
	} {
		t.Run(name, func(t *testing.T) {
			s := hanging(t)
			s.Add(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pvName}})
			claim, _ := kubetest.Read(s.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")})
			kubetest.Change(s.Cluster, claim, func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"tier": "gold"} })
			kubetest.Change(s.Cluster, s.pv(), func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
			})
			s.says("{{ pvc.metadata.labels.tier if pvc.metadata.labels is defined else 'none' }}", "{{ node.metadata.name }}")
			tc.change(s)
			e, err := s.evaluates(&s.all()[0])
			if err != nil || e.err != nil {
				t.Fatal(e.err, err)
			}
			if got := e.template.Spec.Containers[0].Args; !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

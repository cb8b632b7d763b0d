package revocation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestTemplateChanges: the success of a pod of another template is no word; the next pod is of the new one.
func TestTemplateChanges(t *testing.T) {
	for name, does := range map[string]string{"while it runs": "hang", "before the word is written": "ok"} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).taken()
			s.does = does
			for len(s.all()) == 0 || s.all()[0].Status.Phase != moorv1alpha1.PodRevocationRevoked && (does == "ok" || s.made == 0) {
				if err := s.pass(); err != nil {
					t.Fatal(err)
				}
				s.world()
			}
			p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			kubetest.Change(s.Cluster, p, func(p *pavv1alpha1.PavProvisioner) {
				p.Generation++
				p.Spec.VolumeRevocation.PodTemplate = &apiextensionsv1.JSON{Raw: []byte(`{"spec": {"containers": [{"name": "c", "image": "new"}]}}`)}
			})
			s.does = "ok"
			if s.settle(); s.made != 2 {
				t.Errorf("%d pods were made", s.made)
			}
			s.wantWord()
			if events := strings.Join(s.Events(), "\n"); !strings.Contains(events, "volumeRevocation of PavProvisioner p is another") {
				t.Errorf("%q", events)
			}
		})
	}
}

// TestProvisionerIsMadeAnew: one of the same name and text is not the one that vouches.
func TestProvisionerIsMadeAnew(t *testing.T) {
	s := newFixture(t).taken()
	for len(s.all()) == 0 || s.all()[0].Status.Phase != moorv1alpha1.PodRevocationRevoked {
		if err := s.pass(); err != nil {
			t.Fatal(err)
		}
		s.world()
	}
	p, _ := kubetest.Read(s.Cluster, &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	s.Remove(p)
	s.settle()
	s.wantNone("PavProvisioner p does not exist: create it again, its volumes need it, so the storage cannot be asked")
	s.Add(&pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: p.Spec})
	if s.settle(); s.made != 2 {
		t.Errorf("%d pods were made", s.made)
	}
	s.wantWord()
}

// TestStagedSince: what is staged after the revocation began makes its success worthless; the next one counts.
func TestStagedSince(t *testing.T) {
	s := newFixture(t).taken()
	for len(s.all()) == 0 || s.all()[0].Status.Phase != moorv1alpha1.PodRevocationRevoked {
		if err := s.pass(); err != nil {
			t.Fatal(err)
		}
		s.world()
	}
	s.Add(s.stagingPod("staging", "sp", corev1.PodSucceeded, s.Clock.Now()))
	s.Step(time.Second)
	if s.settle(); s.made != 2 {
		t.Errorf("%d pods were made", s.made)
	}
	s.wantWord()
	if events := strings.Join(s.Events(), "\n"); !strings.Contains(events, "staging pod default/sp on DPU dpu-1 was made after its pod") {
		t.Errorf("%q", events)
	}
}

// TestAnothersRevocation: one of another attachment, epoch, volume or DPU under the name of this is discarded, whatever it
// says.
func TestAnothersRevocation(t *testing.T) {
	for name, change := range map[string]func(*moorv1alpha1.PodRevocationSpec){
		"attachment": func(r *moorv1alpha1.PodRevocationSpec) { r.AttachmentUID = "another" },
		"epoch":      func(r *moorv1alpha1.PodRevocationSpec) { r.Epoch = 6 },
		"volume":     func(r *moorv1alpha1.PodRevocationSpec) { r.VolumeUID = "another" },
		"DPU":        func(r *moorv1alpha1.PodRevocationSpec) { r.NodeName = "dpu-2" },
		"request":    func(r *moorv1alpha1.PodRevocationSpec) { r.Request.UID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).taken()
			sv := s.asked()
			f, err := s.req.look(t.Context(), sv)
			if err != nil {
				t.Fatal(err)
			}
			r := &moorv1alpha1.PodRevocation{
				ObjectMeta: metav1.ObjectMeta{Name: nameOf(sv), Finalizers: []string{moorv1alpha1.FinalizerPodRevocation}}, Spec: f.specOf(sv, 7),
				Status: moorv1alpha1.PodRevocationStatus{
					Phase: moorv1alpha1.PodRevocationRevoked, Pod: &moorv1alpha1.HelperPod{Namespace: "default", Name: "x", UID: "x"}, Began: &metav1.Time{Time: s.Clock.Now()},
					ProvisionerUID: f.provisioner.UID, Template: f.provisioner.Provisioner.Revokes(),
				},
			}
			change(&r.Spec)
			s.Add(r)
			if s.settle(); s.made != 1 {
				t.Errorf("%d pods were made", s.made)
			}
			s.wantWord()
		})
	}
}

// TestOldCache: what counts is what the API server itself says, whatever a cache shows.
func TestOldCache(t *testing.T) {
	s := newFixture(t)
	granted, _ := kubetest.Read(s.Cluster, s.claim())
	s.taken()
	fencing, _ := kubetest.Read(s.Cluster, s.claim())
	s.does = "hang"
	s.settle()
	kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status = granted.Status.DeepCopy() })
	s.CacheShows(fencing)
	s.does = "ok"
	s.settle()
	s.wantNone("its right to write is not being taken")
}

// TestSaysFirst: the request is there until the word is written.
func TestSaysFirst(t *testing.T) {
	s := newFixture(t).taken()
	s.AfterWrite(func(_ string, o client.Object) {
		if sv, is := o.(*storagev1alpha1.SVVolumeAttachment); is && len(sv.Finalizers) == 0 && s.attachment().Status.Revocation == nil {
			t.Error("it went before the word was written")
		}
	})
	s.settle()
	s.wantWord()
}

package compiled

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func provisioner(image string) *pavv1alpha1.PavProvisioner {
	return &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: pavv1alpha1.PavProvisionerSpec{
		ProvisioningModes: []pavv1alpha1.ProvisioningMode{pavv1alpha1.Static},
		VolumeStaging:     pavv1alpha1.VolumeStaging{PodTemplate: &apiextensionsv1.JSON{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`)}},
	}}
}

// TestStore: each generation of each object is compiled once.
func TestStore(t *testing.T) {
	s := &Store{}
	p := provisioner("i")
	p.UID, p.Generation = "1", 1
	first, errs := s.Of(p)
	if again, _ := s.Of(p); len(errs) > 0 || again != first {
		t.Errorf("compiled again: %v", errs)
	}
	p.Generation = 2
	second, _ := s.Of(p)
	if second == first {
		t.Error("another generation is the same")
	}
	p.UID = "2"
	third, _ := s.Of(p)
	if third == second {
		t.Error("another object is the same")
	}
	s.Forget("p")
	if again, _ := s.Of(p); again == third {
		t.Error("it is not forgotten")
	}
}

// TestFind: why a provisioner cannot be used is said in words.
func TestFind(t *testing.T) {
	for name, tt := range map[string]struct {
		has      *pavv1alpha1.PavProvisioner
		remove   bool
		usable   bool
		deleting bool
		words    string
	}{
		"usable":  {provisioner("i"), false, true, false, ""},
		"missing": {nil, false, false, false, "PavProvisioner p does not exist"},
		"wrong":   {provisioner("{{"), false, false, false, "PavProvisioner p cannot be used: spec.volumeStaging.podTemplate"},
		"going":   {provisioner("i"), true, true, true, "PavProvisioner p is being deleted"},
	} {
		c := kubetest.NewPods(t)
		if tt.has != nil {
			tt.has.Finalizers = []string{pavv1alpha1.FinalizerProvisioner}
			c.Add(tt.has)
		}
		if tt.remove {
			c.Remove(tt.has)
		}
		got, err := (&Store{}).Find(t.Context(), c.Client, "p")
		if err != nil || (got.Provisioner != nil) != tt.usable || got.Deleting != tt.deleting || !strings.HasPrefix(got.Words, tt.words) || (tt.words == "") != (got.Words == "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

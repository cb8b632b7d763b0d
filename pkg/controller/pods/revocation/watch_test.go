package revocation

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

var errBroken = errors.New("broken")

// manager is one of a cluster that serves these kinds.
type manager struct {
	ctrl.Manager
	kinds []string
	fails string
}

func (m manager) GetRESTMapper() meta.RESTMapper { return mapper{of: m} }

type mapper struct {
	meta.RESTMapper
	of manager
}

func (m mapper) RESTMapping(gk schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	if gk.Kind == m.of.fails {
		return nil, errBroken
	}
	for _, kind := range m.of.kinds {
		if kind == gk.Kind {
			return &meta.RESTMapping{}, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gk}
}

// TestServed: only a cluster of DPUs has what is to be answered; one that lacks the kind in which revocations are
// recorded is an error at the start, and no revocation that never comes.
func TestServed(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds []string
		fails string
		want  bool
		says  string
	}{
		"a cluster without DPUs":          {},
		"one with the other kind alone":   {kinds: []string{"PodRevocation"}},
		"a cluster of DPUs":               {kinds: []string{"SVVolumeAttachment", "PodRevocation"}, want: true},
		"one whose CRDs are of before":    {kinds: []string{"SVVolumeAttachment"}, says: "apply crds/pav of this version"},
		"it cannot be told of the first":  {fails: "SVVolumeAttachment", says: "broken"},
		"it cannot be told of the second": {kinds: []string{"SVVolumeAttachment"}, fails: "PodRevocation", says: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Served(manager{kinds: tc.kinds, fails: tc.fails})
			if got != tc.want || (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestWakes: what happens to a PodRevocation wakes its request, and the other way round.
func TestWakes(t *testing.T) {
	sv := request()
	sv.UID = "uid"
	r := &moorv1alpha1.PodRevocation{}
	r.Name, r.Spec.Request = nameOf(sv), moorv1alpha1.RevocationRequest{Namespace: sv.Namespace, Name: sv.Name, UID: sv.UID}
	if got := ofRevocation(t.Context(), r); len(got) != 1 || got[0].Namespace != sv.Namespace || got[0].Name != sv.Name {
		t.Errorf("the request is %v", got)
	}
	if got := new(Reconciler).asked(t.Context(), sv); len(got) != 1 || got[0].Namespace != "" || got[0].Name != r.Name || r.Name == "" {
		t.Errorf("the PodRevocation is %v", got)
	}
}

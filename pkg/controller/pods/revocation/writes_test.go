package revocation

import (
	"errors"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestWriteFails: a pass whose write has failed has failed, whichever write it is: else nothing would try it again.
func TestWriteFails(t *testing.T) {
	taken := func(t *testing.T) *fixture { return newFixture(t).taken() }
	for name, tc := range map[string]struct {
		prepare func(*testing.T) *fixture
		want    func(*fixture) bool // nothing is done yet
	}{
		"it is to be shut": {taken, func(s *fixture) bool { return len(s.all()) == 0 }},
		"the storage is to be asked": {func(t *testing.T) *fixture {
			s := taken(t)
			if err := s.ask(); err != nil {
				t.Fatal(err)
			}
			return s
		}, func(s *fixture) bool { return len(s.all()) == 0 }},
		"a revocation is to be discarded": {func(t *testing.T) *fixture {
			s := hanging(t)
			kubetest.Change(s.Cluster, &s.all()[0], func(r *moorv1alpha1.PodRevocation) { r.Spec.Epoch-- })
			s.Events()
			return s
		}, func(s *fixture) bool { return s.all()[0].DeletionTimestamp.IsZero() && len(s.Events()) == 0 }},
		"the word is to be written": {func(t *testing.T) *fixture {
			s := taken(t)
			for len(s.all()) == 0 || s.all()[0].Status.Phase != isRevoked {
				if err := s.pass(); err != nil {
					t.Fatal(err)
				}
				s.world()
			}
			return s
		}, func(s *fixture) bool { return s.asked() != nil && s.attachment().Status.Revocation == nil }},
		"it is to be let go": {func(t *testing.T) *fixture {
			s := taken(t)
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) {
				c.Status.Phase, c.Status.Holder, c.Status.Attachment, c.Status.AttachmentUID = moorv1alpha1.ClaimFree, "", "", ""
			})
			return s
		}, func(s *fixture) bool { return s.asked() != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.prepare(t)
			s.LoseWrite(1, false)
			if err := s.ask(); !errors.Is(err, kubetest.ErrLost) {
				t.Errorf("the pass says %v", err)
			}
			if !tc.want(s) {
				t.Errorf("something was done: %+v, %+v", s.asked(), s.all())
			}
		})
	}
}

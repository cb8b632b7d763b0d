package heartbeat

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBusyServer: a server that has too much to do, or does not answer, is not asked for a
// larger write in place of the one that it did not do; but news is told.
func TestBusyServer(t *testing.T) {
	for name, refuse := range map[string]error{
		"does not answer":     errors.New("no route"),
		"has no time":         apierrors.NewTimeoutError("request did not complete within requested timeout", 0),
		"refuses for a while": apierrors.NewTooManyRequests("too many", 1),
		"has no etcd":         &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, nil)
			s.beat()
			s.want("the first", 1, 1, 2)
			s.refuse = func(bool) error { return refuse }
			if err := s.h.Beat(t.Context()); !errors.Is(err, refuse) {
				t.Errorf("got %v", err)
			}
			s.want("the next", 0, 1, 0)
			s.state.SNAPReady, s.refuse = false, func(lease bool) error {
				if lease {
					return refuse
				}
				return nil
			}
			s.beat()
			s.want("with news", 1, 1, 0)
		})
	}
}

package revocation

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failing reads from the API server, but for one read that is not answered.
type failing struct {
	client.Reader
	// left are the reads up to that one.
	left int
}

func (f *failing) fails() error {
	if f.left--; f.left == 0 {
		return errBroken
	}
	return nil
}

func (f *failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.Reader.Get(ctx, key, o, opts...)
}

func (f *failing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.Reader.List(ctx, list, opts...)
}

// TestEachReadFails: an API server that does not answer one read, whichever of a pass it is, fails the pass, and nothing
// follows from what was not read. The next pass goes on, and it comes to the same.
func TestEachReadFails(t *testing.T) {
	s := newFixture(t).taken()
	reader, failed := &failing{Reader: s.Live}, 0
	s.req.Live, s.rev.Live, s.rev.Pods.Live = reader, reader, reader
	for range 100 {
		before := s.Writes()
		for n := 1; ; n++ {
			reader.left = n
			err := s.pass()
			if reader.left > 0 { // there is no such read
				if err != nil && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
				break
			}
			if failed++; !errors.Is(err, errBroken) {
				t.Errorf("read %d is not answered, and the pass says %v", n, err)
			}
		}
		if !s.world() && s.Writes() == before {
			break
		}
	}
	if s.wantWord(); failed < 20 {
		t.Errorf("only %d reads were tried", failed)
	}
}

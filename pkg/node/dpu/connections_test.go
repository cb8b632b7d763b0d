package dpu

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// silentPaths is SNAP that does not tell of ways, and counts what it shows.
type silentPaths struct {
	provisioner.DPU
	err   error
	shown *int
}

func (s silentPaths) Paths(ctx context.Context, devices []string) ([]provisioner.Path, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.DPU.Paths(ctx, devices)
}

func (s silentPaths) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	*s.shown++
	return s.DPU.Expose(ctx, spec)
}

// TestWayIsSeenBeforeTheDevice: a way that is lost and found between the first I/O and the first look is
// noticed, as its connection was seen before. A SNAP that does not answer shows nothing then; one that
// does not know of ways does.
func TestWayIsSeenBeforeTheDevice(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		shown bool
	}{
		"it tells":           {nil, true},
		"it refuses":         {provisioner.ErrUnsupported, true},
		"it does not answer": {provisioner.ErrSilent, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m, exposed := newMachine(t, c, "dpu-1"), 0
			m.watched = func(d provisioner.DPU) provisioner.DPU { return silentPaths{d, tc.err, &exposed} }
			c.volume("v1", corev1.ReadWriteOnce)
			a := c.attachment("v1", "dpu-1")
			c.grant(a, 3)
			var err error
			for range 5 {
				err = errors.Join(err, m.pass(a.Name))
			}
			if shown := m.shown()["dev_v1-pvc"].Visible; shown != tc.shown || exposed > 0 != tc.shown || errors.Is(err, provisioner.ErrSilent) == tc.shown {
				t.Errorf("shown: %t, after %d attempts, %v", shown, exposed, err)
			}
			if seen := slices.Contains(m.ways.seen, "dev_v1-pvc"); seen != (tc.err == nil) {
				t.Errorf("seen: %v", m.ways.seen)
			}
		})
	}
}

// TestOpeningIsNoLoss: the connection that a vendor makes for a later epoch, or for a device that it makes
// again, is told to what watches ways; that a device is shown on is not.
func TestOpeningIsNoLoss(t *testing.T) {
	c, m, a := epochal(t, corev1.ReadWriteOnce)
	c.grant(a, 3)
	c.must(m.pass(a.Name))
	m.settle(a.Name)
	if len(m.ways.anew) != 1 {
		t.Fatalf("opened once, told of %v", m.ways.anew)
	}
	c.fenced(a.Name, 3)
	m.settle(a.Name)
	m.settle(a.Name)
	if len(m.ways.anew) != 1 {
		t.Errorf("nothing was opened since, told of %v", m.ways.anew)
	}
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	m.settle(a.Name)
	if len(m.ways.anew) != 2 {
		t.Errorf("removed, told of %v", m.ways.anew)
	}
}

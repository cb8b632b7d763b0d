package dpu

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// fakeLease is a lease that a test ends and renews.
type fakeLease struct {
	good    bool
	term    int64
	running int
	asked   func()
}

func (l *fakeLease) Permit() (int64, bool) {
	if l.asked != nil {
		l.asked()
	}
	return l.term, l.good
}

func (l *fakeLease) Enter(term int64) (func(), bool) {
	if !l.good || term != l.term {
		return nil, false
	}
	l.running++
	return func() { l.running-- }, true
}

func leasedMachine(t *testing.T) (*machine, *cluster, *fakeLease) {
	c := newCluster(t)
	m, l := newMachine(t, c, "dpu-1"), &fakeLease{good: true}
	m.lease = l
	m.restartDriver()
	return m, c, l
}

func (m *machine) wantShown(want bool) {
	m.t.Helper()
	shown, err := m.exposures.ShowsSingleWriter(m.t.Context())
	if err != nil || shown != want {
		m.t.Fatalf("shown: %v (%v), want %v", shown, err, want)
	}
}

// TestLease: what is shown goes at the end of the lease, without the API server,
// and comes back only when the lease is good again.
func TestLease(t *testing.T) {
	m, c, l := leasedMachine(t)
	c.volume("vol", corev1.ReadWriteOnce)
	a := c.attachment("vol", "dpu-1")
	c.grant(a, 1)
	m.wantShown(false)
	if got := m.settle(a.Name); !got.Status.DPU.Attached {
		t.Fatalf("not shown: %s", got.Status.Message)
	}
	if m.wantShown(true); l.running != 0 {
		t.Errorf("%d are still at work", l.running)
	}
	l.good = false
	c.onRead = func() error { return errors.New("the API server is gone") }
	err := m.exposures.WithdrawSingleWriter(t.Context())
	c.onRead = nil
	if err != nil {
		t.Fatal(err)
	}
	m.wantShown(false)
	if got := m.settle(a.Name); got.Status.DPU.Attached || !strings.Contains(got.Status.Message, "has not renewed its lease") {
		t.Errorf("attached: %v, %q", got.Status.DPU.Attached, got.Status.Message)
	}
	m.wantShown(false)
	l.good, l.term = true, 1
	if got := m.settle(a.Name); !got.Status.DPU.Attached {
		t.Errorf("not shown again: %s", got.Status.Message)
	}
}

// TestLeaseEndsInBetween: the lease ends after the claim was read, and perhaps
// begins again: the claim may have changed since.
func TestLeaseEndsInBetween(t *testing.T) {
	m, c, l := leasedMachine(t)
	c.volume("vol", corev1.ReadWriteOnce)
	a := c.attachment("vol", "dpu-1")
	c.grant(a, 1)
	asked := 0
	l.asked = func() { asked++ }
	c.onRead = func() error {
		if asked > 0 {
			l.term++ // after Permit, before SNAP is told
		}
		return nil
	}
	var err error
	for range 5 {
		err = m.pass(a.Name)
	}
	if m.wantShown(false); asked == 0 {
		t.Error("the lease was not asked")
	}
	if !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "the lease of DPU dpu-1 ended just now") {
		t.Errorf("it says %v", err)
	}
}

// TestLeaseOfWhatIsStillShown: until the end of the lease has taken the device away, a pass changes nothing
// of what is said of it.
func TestLeaseOfWhatIsStillShown(t *testing.T) {
	m, c, l := leasedMachine(t)
	c.volume("vol", corev1.ReadWriteOnce)
	a := c.attachment("vol", "dpu-1")
	c.grant(a, 1)
	before := m.settle(a.Name)
	l.good = false
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now.ResourceVersion != before.ResourceVersion || !now.Status.DPU.Attached {
		t.Errorf("said is %+v, was %+v", now.Status, before.Status)
	}
}

// TestLeaseOfAReplica: a replica is made ready without a lease, so that it is ready when its DPU has one.
func TestLeaseOfAReplica(t *testing.T) {
	m, c, l := leasedMachine(t)
	l.good = false
	c.volume("vol", corev1.ReadWriteOnce)
	a := c.attachment("vol", "dpu-1")
	c.role(a.Name, storagev1alpha1.RoleReplica)
	if now := m.settle(a.Name); !now.Status.DPU.PreEmulated || now.Status.Message != "" {
		t.Errorf("got %+v", now.Status)
	}
}

// TestLeaseIsAskedFirst: what is read of the claim is newer than the renewal.
func TestLeaseIsAskedFirst(t *testing.T) {
	m, c, l := leasedMachine(t)
	c.volume("vol", corev1.ReadWriteOnce)
	a := c.attachment("vol", "dpu-1")
	c.grant(a, 1)
	m.settle(a.Name)
	c.must(m.exposures.WithdrawSingleWriter(t.Context()))
	reads, since := 0, -1
	c.onRead = func() error { reads++; return nil }
	l.asked = func() { since = reads }
	m.settle(a.Name)
	if since < 0 || reads-since < 2 {
		t.Errorf("%d reads after the lease was asked, want those of attachment and claim", reads-since)
	}
}

// TestLeaseOfManyWriters: volumes of several writers need no lease, and stay.
func TestLeaseOfManyWriters(t *testing.T) {
	m, c, l := leasedMachine(t)
	l.good = false
	c.volume("many", corev1.ReadWriteMany)
	a := c.attachment("many", "dpu-1")
	if got := m.settle(a.Name); !got.Status.DPU.Attached {
		t.Fatalf("not shown: %s", got.Status.Message)
	}
	m.wantShown(false)
	c.must(m.exposures.WithdrawSingleWriter(t.Context()))
	if len(m.shown()) != 1 {
		t.Error("a volume of many writers was taken away")
	}
	// While it is not known whose it is, it counts, and goes.
	c.onRead = func() error { return errors.New("no cache yet") }
	m.wantShown(true)
	c.must(m.exposures.WithdrawSingleWriter(t.Context()))
	m.wantShown(false)
}

// TestShownInDoubt: a SNAP that does not answer may show anything.
func TestShownInDoubt(t *testing.T) {
	m, _, _ := leasedMachine(t)
	m.inject(map[string]any{"method": "nvme_subsystem_list", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
	if shown, err := m.exposures.ShowsSingleWriter(t.Context()); !shown || err == nil {
		t.Errorf("shown: %v (%v)", shown, err)
	}
	m.clear()
	m.wantShown(false)
	none := exposures.New(exposures.Options{Root: t.TempDir(), Attachments: m.o.Attachments, Timeout: time.Second})
	if shown, err := none.ShowsSingleWriter(t.Context()); !shown || err == nil {
		t.Errorf("without a service, shown: %v (%v)", shown, err)
	}
}

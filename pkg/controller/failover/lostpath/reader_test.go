package lostpath

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

var errNoAnswer = errors.New("the API server does not answer")

// fixture is volume "vol" of host a, of which the DPUs of hosts b and c have a device as well,
// reach the storage and are heard.
type fixture struct {
	*kubetest.Clusters
	r      Reader
	volume *storagev1alpha1.DPUVolume
	// revokes and fails are the answer about the vendor; asked are the drivers asked about.
	revokes bool
	fails   error
	asked   []string
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{Clusters: kubetest.New(t), volume: kubetest.DPUVolume("vol", corev1.ReadWriteOnce)}
	s.volume.Spec.Replication = &storagev1alpha1.Replication{Failover: storagev1alpha1.FailoverFence}
	s.volume.Status.State = &storagev1alpha1.DPUVolumeState{CSIDriverName: "vendor"}
	s.r = Reader{
		Host: s.Host.Cluster, DPU: s.DPU.Cluster, Heartbeats: nodehealth.New(s.Clock, 0, 0), Clock: s.Clock,
		Revokes: func(_ context.Context, driver string) (bool, error) {
			s.asked = append(s.asked, driver)
			return s.revokes, s.fails
		},
	}
	// The names of the attachments are in another order than those of the hosts.
	for name, host := range map[string]string{"1": "c", "2": "b", "3": "a"} {
		n := kubetest.DPUStorageNode(host)
		n.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true}
		a := kubetest.DPUVolumeAttachment("vol", host)
		a.Name, a.Status.Warmth = name, storagev1alpha1.WarmthPreEmulated
		s.Host.Add(n, a)
	}
	s.beats(30, "dpu-a", "dpu-b", "dpu-c")
	return s
}

// beats lets seconds pass in which these DPUs are heard.
func (s *fixture) beats(seconds int, dpus ...string) {
	for range seconds / 5 {
		s.Step(5 * time.Second)
		s.r.Heartbeats.SelfHeartbeat(nodehealth.DPUCluster)
		for _, dpu := range dpus {
			s.r.Heartbeats.HearDPU(dpu, 0, s.Clock.Now())
		}
	}
}

func (s *fixture) own() *storagev1alpha1.DPUVolumeAttachment {
	a := kubetest.DPUVolumeAttachment("vol", "a")
	a.Name = "3"
	return a
}

// attachment changes that of host b.
func (s *fixture) attachment(change func(*storagev1alpha1.DPUVolumeAttachment)) {
	a := kubetest.DPUVolumeAttachment("vol", "b")
	a.Name = "2"
	kubetest.Change(s.Host, a, change)
}

// dpu changes what the DPU of host b says.
func (s *fixture) dpu(change func(*moorv1alpha1.DPUStorageNode)) {
	kubetest.Change(s.Host, kubetest.DPUStorageNode("b"), change)
}

func (s *fixture) read(t *testing.T, open *int64) (Facts, error) {
	return s.r.Read(t.Context(), s.volume, s.own(), s.Clock.Now().Add(-20*time.Second), open)
}

// TestWitnesses: a volume moves only to where its storage is reached. Who has no device of it
// sees nothing of that storage, and is none of those who have; who has one and is not heard, sees
// no storage or has lost its path too, is no witness.
func TestWitnesses(t *testing.T) {
	warmth := func(w storagev1alpha1.Warmth) func(*fixture) {
		return func(s *fixture) { s.attachment(func(a *storagev1alpha1.DPUVolumeAttachment) { a.Status.Warmth = w }) }
	}
	path := func(healthy metav1.ConditionStatus) func(*fixture) {
		return func(s *fixture) {
			s.attachment(func(a *storagev1alpha1.DPUVolumeAttachment) {
				meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: storagev1alpha1.ConditionPathHealthy, Status: healthy, Reason: "Test"})
			})
		}
	}
	loses := func(volume string) func(*fixture) {
		return func(s *fixture) {
			s.dpu(func(n *moorv1alpha1.DPUStorageNode) {
				n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: volume}}
			})
		}
	}
	both, alone := []string{"b", "c"}, []string{"c"}
	for name, tc := range map[string]struct {
		play      func(*fixture)
		others    int
		witnesses []string
	}{
		"both":                           {func(*fixture) {}, 2, both},
		"one is in use":                  {warmth(storagev1alpha1.WarmthAttached), 2, both},
		"one has no device yet":          {warmth(storagev1alpha1.WarmthStorageAttached), 1, alone},
		"one has nothing yet":            {warmth(""), 1, alone},
		"one says that its path is well": {path(metav1.ConditionTrue), 2, both},
		"one has lost its path":          {path(metav1.ConditionFalse), 2, alone},
		"its DPU alone says so":          {loses("vol"), 2, alone},
		"it has lost another's":          {loses("other"), 2, both},
		"its SNAP is away":               {func(s *fixture) { s.dpu(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false }) }, 2, alone},
		"its DPU says nothing":           {func(s *fixture) { s.dpu(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = nil }) }, 2, alone},
		"its DPU is not named":           {func(s *fixture) { s.dpu(func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "" }) }, 2, alone},
		"its host is gone":               {func(s *fixture) { s.Host.Remove(kubetest.DPUStorageNode("b")) }, 2, alone},
		"its DPU is late":                {func(s *fixture) { s.beats(20, "dpu-a", "dpu-c") }, 2, alone},
		"its DPU was never heard": {func(s *fixture) {
			s.dpu(func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-z" })
		}, 2, alone},
		"it goes": {func(s *fixture) {
			s.attachment(func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = []string{"x"} })
			a := kubetest.DPUVolumeAttachment("vol", "b")
			a.Name = "2"
			s.Host.Remove(a)
		}, 1, alone},
		"its DPU's own object says more than the copy": {func(s *fixture) {
			n := kubetest.DPUStorageNode("dpu-b")
			n.Spec.DPUName = ""
			n.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true, LostPaths: []moorv1alpha1.LostPath{{Volume: "vol"}}}
			s.DPU.Add(n)
		}, 2, alone},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			tc.play(s)
			got, err := s.read(t, nil)
			if err != nil || got.Others != tc.others || !slices.Equal(got.Witnesses, tc.witnesses) {
				t.Errorf("%+v, %v, want %d others, of which %q are witnesses", got, err, tc.others, tc.witnesses)
			}
		})
	}
}

// TestADrainedHostIsNoDestination: its DPU still sees that the storage is there.
func TestADrainedHostIsNoDestination(t *testing.T) {
	s := newFixture(t)
	s.dpu(func(n *moorv1alpha1.DPUStorageNode) { n.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "update"} })
	if got, err := s.read(t, nil); err != nil || got.Others != 2 || !slices.Equal(got.Witnesses, []string{"c"}) || !slices.Equal(got.Drained, []string{"b"}) {
		t.Errorf("%+v, %v", got, err)
	}
	s.dpu(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false })
	if got, err := s.read(t, nil); err != nil || len(got.Drained) != 0 {
		t.Errorf("%+v, %v: a drained DPU that reaches no storage", got, err)
	}
}

// TestWhoCanEndTheRight: a storage that knows epochs can, and its vendor need not be asked
// about; of any other its vendor has to vouch.
func TestWhoCanEndTheRight(t *testing.T) {
	for name, tc := range map[string]struct {
		play    func(*fixture)
		open    *int64
		epochs  bool
		revokes bool
		asked   []string
	}{
		"open under an epoch":         {func(s *fixture) { s.revokes = true }, ptr.To(int64(1)), true, false, nil},
		"open under none":             {func(s *fixture) { s.revokes = true }, ptr.To(int64(0)), false, true, []string{"vendor"}},
		"it knows none":               {func(s *fixture) { s.revokes = true }, nil, false, true, []string{"vendor"}},
		"its vendor does not vouch":   {func(*fixture) {}, nil, false, false, []string{"vendor"}},
		"its vendor is not on record": {func(s *fixture) { s.revokes, s.volume.Status.State = true, nil }, nil, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			tc.play(s)
			got, err := s.read(t, tc.open)
			if err != nil || got.Epochs != tc.epochs || got.Revokes != tc.revokes || !slices.Equal(s.asked, tc.asked) {
				t.Errorf("%+v, %v; asked about %q", got, err, s.asked)
			}
			if got.Lost != 20*time.Second || got.Timeout != storagev1alpha1.DefaultPathTimeoutSeconds*time.Second || got.Leaving {
				t.Errorf("%+v: it is lost for 20 s", got)
			}
		})
	}
}

// TestSince: what the condition of an attachment says, and since when.
func TestSince(t *testing.T) {
	at := metav1.NewTime(kubetest.Begin)
	for status, lost := range map[metav1.ConditionStatus]bool{metav1.ConditionFalse: true, metav1.ConditionTrue: false, metav1.ConditionUnknown: false, "": false} {
		a := kubetest.DPUVolumeAttachment("vol", "a")
		a.Status.Conditions = []metav1.Condition{{Type: "Other", Status: metav1.ConditionFalse}}
		if status != "" {
			a.Status.Conditions = append(a.Status.Conditions, metav1.Condition{Type: storagev1alpha1.ConditionPathHealthy, Status: status, LastTransitionTime: at})
		}
		if since, ok := Since(a); ok != lost || since.Equal(at.Time) != lost || since.IsZero() == lost {
			t.Errorf("%q: lost %t since %s", status, ok, since)
		}
	}
}

// failing has the read of this number fail, of both clusters together, and counts them.
func (s *fixture) failing(at int) *int {
	n := 0
	next := func() error {
		if n++; n == at {
			return errNoAnswer
		}
		return nil
	}
	of := func(c client.Client) kube.Cluster {
		return kube.Cluster{Client: interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := next(); err != nil {
					return err
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if err := next(); err != nil {
					return err
				}
				return c.List(ctx, l, opts...)
			},
		})}
	}
	s.r.Host, s.r.DPU = of(s.Host.Client), of(s.DPU.Client)
	return &n
}

// TestEachReadFails: whichever read fails, nothing is known, and so nothing moves.
func TestEachReadFails(t *testing.T) {
	for at := 1; ; at++ {
		s := newFixture(t)
		n := s.failing(at)
		got, err := s.read(t, nil)
		if *n < at {
			// The attachments, and of two of them the host, in both clusters.
			if err != nil || *n != 5 || got.Others != 2 {
				t.Errorf("%+v, %v after %d reads", got, err, *n)
			}
			break
		}
		if !errors.Is(err, errNoAnswer) || got.Others+len(got.Witnesses) > 0 || got.Lost != 0 {
			t.Errorf("read %d: %+v, %v", at, got, err)
		}
	}
	s := newFixture(t)
	s.fails, s.revokes = errNoAnswer, true
	if got, err := s.read(t, nil); !errors.Is(err, errNoAnswer) || got.Revokes {
		t.Errorf("the vendor cannot be asked about: %+v, %v", got, err)
	}
}

// TestNoWitnessUnread: a DPU of which something could not be read is no witness.
func TestNoWitnessUnread(t *testing.T) {
	for at := 1; at <= 2; at++ {
		s := newFixture(t)
		n := s.failing(at)
		if _, reaches, err := s.r.reaches(t.Context(), kubetest.DPUVolumeAttachment("vol", "b")); reaches || !errors.Is(err, errNoAnswer) || *n != at {
			t.Errorf("read %d of %d: it reaches the storage: %t, %v", at, *n, reaches, err)
		}
	}
}

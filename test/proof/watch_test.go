package proof

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

const namespace = "dpus"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func claimNamed(name, version string, status *moorv1alpha1.WriterClaimStatus) *moorv1alpha1.WriterClaim {
	return &moorv1alpha1.WriterClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, ResourceVersion: version},
		Spec:       moorv1alpha1.WriterClaimSpec{VolumeName: name}, Status: status,
	}
}

func cluster(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := moorv1alpha1.AddDPUToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&moorv1alpha1.WriterClaim{}).
		WithObjects(claimNamed("v", "", nil), claimNamed("other", "", nil)).Build()
}

// phases are the states in short, after a check of their times.
func phases(t *testing.T, states []State) string {
	t.Helper()
	var out []string
	for i, s := range states {
		if s.At <= 0 || i > 0 && s.At < states[i-1].At {
			t.Errorf("state %d is of %s", i, s.At)
		}
		out = append(out, string(s.Phase)+s.Holder)
	}
	return strings.Join(out, " ")
}

func TestRecorder(t *testing.T) {
	ctx := t.Context()
	c := cluster(t)
	r, err := Watch(ctx, c, namespace, "v")
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string, status moorv1alpha1.WriterClaimStatus) {
		t.Helper()
		claim := &moorv1alpha1.WriterClaim{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim); err != nil {
			t.Fatal(err)
		}
		claim.Status = &status
		if err := c.Status().Update(ctx, claim); err != nil {
			t.Fatal(err)
		}
	}
	set("v", moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "a", Epoch: 1})
	set("other", moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "x", Epoch: 7})
	set("v", moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "a", Epoch: 1})
	set("v", moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1, Receipts: receipts("a")})
	states, err := r.States(ctx)
	if err != nil || phases(t, states) != "Free Granteda Free" || len(Check(History{States: states})) != 0 {
		t.Errorf("%+v, %v", states, err)
	}
	if err := c.Delete(ctx, claimNamed("v", "", nil)); err != nil {
		t.Fatal(err)
	}
	after, err := r.States(ctx)
	if err != nil || len(after) != len(states) {
		t.Errorf("after the claim is gone: %+v, %v", after, err)
	}
}

// feed is a cluster whose watches the test plays.
type feed struct {
	begun  chan string
	source chan watch.Interface
	now    *moorv1alpha1.WriterClaim
}

func (f *feed) client(t *testing.T) client.WithWatch {
	return interceptor.NewClient(cluster(t), interceptor.Funcs{
		Watch: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			select {
			case f.begun <- o.Raw.ResourceVersion:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			w := <-f.source
			if w == nil {
				return nil, errors.New("connection refused")
			}
			return w, nil
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*moorv1alpha1.WriterClaimList).ResourceVersion = "10"
			return nil
		},
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			f.now.DeepCopyInto(o.(*moorv1alpha1.WriterClaim))
			return nil
		},
	})
}

func TestRecorderGoesOnWhereItEnded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one, two := watch.NewRaceFreeFake(), watch.NewRaceFreeFake()
	f := &feed{begun: make(chan string, 4), source: make(chan watch.Interface, 3)}
	for _, w := range []watch.Interface{one, nil, two} { // the second is refused
		f.source <- w
	}
	r, err := Watch(ctx, f.client(t), namespace, "v")
	if err != nil {
		t.Fatal(err)
	}
	status := moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "a", Epoch: 1}
	one.Modify(claimNamed("v", "11", &status))
	one.Modify(claimNamed("other", "12", nil))
	one.Stop()
	var versions []string
	for range 3 {
		versions = append(versions, <-f.begun)
	}
	if want := []string{"10", "12", "12"}; !slices.Equal(versions, want) {
		t.Errorf("watches begin at %q, not %q", versions, want)
	}
	fencing := status
	fencing.Phase = moorv1alpha1.ClaimFencing
	f.now = claimNamed("v", "13", &fencing)
	two.Modify(f.now)
	if states, err := r.States(ctx); err != nil || phases(t, states) != "Granteda Fencinga" {
		t.Errorf("%+v, %v", states, err)
	}

	gone := apierrors.NewResourceExpired("too old").Status()
	two.Error(&gone)
	f.now = claimNamed("v", "99", nil)
	if states, err := r.States(ctx); !apierrors.IsResourceExpired(err) {
		t.Errorf("a record with a hole: %+v, %v", states, err)
	}
}

func TestRecorderThatLags(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &feed{begun: make(chan string, 1), source: make(chan watch.Interface, 1), now: claimNamed("v", "11", nil)}
	f.source <- watch.NewRaceFreeFake()
	r, err := Watch(ctx, f.client(t), namespace, "v")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if states, err := r.States(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", states, err)
	}
}

// TestEndOf: an epoch is over from the second of its receipt on, by either clock.
func TestEndOf(t *testing.T) {
	wall := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(wall.Add(-ago)) }
	receipts := []moorv1alpha1.Receipt{{Epoch: 3, Time: at(90 * time.Second)}, {Epoch: 4, Time: at(10 * time.Second)}, {Epoch: 5}}
	for _, tc := range []struct {
		epoch int64
		now   time.Duration
		want  time.Duration
	}{
		{epoch: 4, now: time.Minute, want: 49*time.Second + 400*time.Millisecond},
		{epoch: 3, now: time.Minute, want: 0}, // before this boot
		{epoch: 5, now: time.Minute, want: 0}, // no time
		{epoch: 2, now: time.Minute, want: 0},
	} {
		if got := endOf(tc.epoch, receipts, wall, tc.now); got != tc.want {
			t.Errorf("epoch %d ended at %s, want %s", tc.epoch, got, tc.want)
		}
	}
}

// TestRecordsWhenAnEpochMayBegin: a grant is recorded with the end of the epoch before,
// and the next state of the same grant is no news for that.
func TestRecordsWhenAnEpochMayBegin(t *testing.T) {
	now := time.Now()
	r := &Recorder{volume: "v", seen: map[string]bool{}, changed: make(chan struct{})}
	granted := &moorv1alpha1.WriterClaimStatus{
		Phase: moorv1alpha1.ClaimGranted, Holder: "d", Epoch: 2,
		Receipts: []moorv1alpha1.Receipt{{Epoch: 1, Holder: "c", Time: metav1.NewTime(now)}},
	}
	r.note(claimNamed("v", "1", granted), false)
	r.note(claimNamed("v", "2", granted), false)
	if len(r.states) != 1 {
		t.Fatalf("%d states, want one", len(r.states))
	}
	if s := r.states[0]; s.NotBefore <= 0 || s.NotBefore > s.At || s.At-s.NotBefore > time.Minute {
		t.Errorf("seen at %s, not before %s", s.At, s.NotBefore)
	}
}

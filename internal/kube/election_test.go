package kube

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestElection(t *testing.T) {
	for name, c := range map[string]struct {
		args  string
		want  Election
		words string
	}{
		"off":           {args: "--leader-election-lease-duration=0s", want: Election{RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}},
		"by default":    {args: "--leader-elect", want: Election{LeaderElect: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}},
		"short":         {args: "--leader-elect --leader-election-lease-duration=5s --leader-election-renew-deadline=3s --leader-election-retry-period=1s", want: Election{LeaderElect: true, LeaseDuration: 5 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second}},
		"no retry":      {args: "--leader-elect --leader-election-retry-period=0s", words: "--leader-election-retry-period is 0s"},
		"hardly one":    {args: "--leader-elect --leader-election-retry-period=9s", words: "--leader-election-renew-deadline is 10s: more than 1.2"},
		"as long":       {args: "--leader-elect --leader-election-lease-duration=10s", words: "--leader-election-lease-duration is 10s: whole seconds are needed, and more than"},
		"half a second": {args: "--leader-elect --leader-election-lease-duration=10500ms", words: "--leader-election-lease-duration is 10.5s: whole seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			var e Election
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			e.Bind(fs, "")
			if err := fs.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			switch err := e.Validate(); {
			case c.words != "":
				if err == nil || !strings.Contains(err.Error(), c.words) {
					t.Fatalf("got %v, want %q", err, c.words)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if e != c.want {
				t.Errorf("got %+v, want %+v", e, c.want)
			}
			o := e.Of("l", ctrl.Options{})
			if o.LeaderElection != c.want.LeaderElect {
				t.Fatalf("elects: %t", o.LeaderElection)
			}
			if o.LeaderElection && (o.LeaderElectionID != "l" || *o.LeaseDuration != e.LeaseDuration || *o.RenewDeadline != e.RenewDeadline || *o.RetryPeriod != e.RetryPeriod || !o.LeaderElectionReleaseOnCancel) {
				t.Errorf("the manager is told %+v", o)
			}
		})
	}
}

// TestALeaderThatHangsGivesItsLeaseBack: another replica need not wait until it has run out.
func TestALeaderThatHangsGivesItsLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := Election{LeaderElect: true, LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second}
		leases := fake.NewClientset().CoordinationV1()
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		}
		holder := func() string {
			lease, err := leases.Leases("ns").Get(t.Context(), "l", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return ptr.Deref(lease.Spec.HolderIdentity, "")
		}
		mgr, err := ctrl.NewManager(&rest.Config{Host: "https://none"}, e.Of("l", ctrl.Options{
			LeaderElectionResourceLockInterface: lock, Metrics: metricsserver.Options{BindAddress: "0"},
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
		}))
		if err != nil {
			t.Fatal(err)
		}
		hangs := make(chan struct{})
		if err := mgr.Add(ctrlmanager.RunnableFunc(func(context.Context) error { <-hangs; return nil })); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		<-mgr.Elected()
		if got := holder(); got != "me" {
			t.Fatalf("%q has the lease", got)
		}
		end()
		asked := time.Now()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "grace period") {
			t.Errorf("it ended with %v", err)
		}
		if took := time.Since(asked); took > 5*time.Second || holder() != "" {
			t.Errorf("after %s %q has the lease", took, holder())
		}
		close(hangs)
	})
}

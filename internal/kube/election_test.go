package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
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

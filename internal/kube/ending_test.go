package kube

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

// inItself is set in the process that TestEndsWithoutAPIServer starts: what is left of the manager
// keeps a processor busy to its end.
const inItself = "MOOR_TEST_ENDING"

// TestEndsWithoutAPIServer: a manager whose caches are never filled ends when it is asked to.
func TestEndsWithoutAPIServer(t *testing.T) {
	if os.Getenv(inItself) == "" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestEndsWithoutAPIServer$")
		cmd.Env = append(os.Environ(), inItself+"=1")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
		return
	}
	flags := Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 1, SyncPeriod: time.Hour}
	mgr, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, clientgoscheme.Scheme, flags, "", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Hold(t.Context(), mgr.GetCache(), &corev1.Node{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := mgr.Start(ctx); err != nil {
		t.Error(err)
	}
}

// slowManager fills its caches, if at all, at once, and ends some time after it is asked to.
type slowManager struct {
	ctrl.Manager
	work  ctrlmanager.Runnable
	fills bool
}

func (m *slowManager) Add(work ctrlmanager.Runnable) error {
	m.work = work
	return nil
}

var errEnded = errors.New("as it ended")

func (m *slowManager) Start(ctx context.Context) error {
	if m.fills {
		if err := m.work.Start(ctx); err != nil {
			return err
		}
	}
	<-ctx.Done()
	<-time.After(endsWithin)
	return errEnded
}

// TestEnding: what works is waited for, and its end is told.
func TestEnding(t *testing.T) {
	for name, row := range map[string]struct {
		fills bool
		takes time.Duration
		err   error
	}{
		"its caches are filled":       {true, endsWithin, errEnded},
		"its caches are never filled": {false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mgr, err := Ending(&slowManager{fills: row.fills})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var asked time.Time
				time.AfterFunc(time.Minute, func() {
					asked = time.Now()
					cancel()
				})
				if err := mgr.Start(ctx); !errors.Is(err, row.err) || time.Since(asked) != row.takes {
					t.Errorf("%v, %s after it was asked to end; want %v, after %s", err, time.Since(asked), row.err, row.takes)
				}
				<-time.After(endsWithin) // what was left ends with the bubble
			})
		})
	}
}

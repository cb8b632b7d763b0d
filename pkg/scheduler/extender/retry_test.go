package extender

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

// What a node that opens has tried again is what that node had refused, by one
// write; when that fails, it is made again.
func TestRefusedPodsAreTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		claim  string
		asked  string
		fails  int
		change func(*statetest.Cluster)
		want   int
	}{
		"the DPU is alive again":          {"a", "dead", 0, func(c *statetest.Cluster) { c.Node("dead", 1) }, 1},
		"the API server answers late":     {"a", "dead", 2, func(c *statetest.Cluster) { c.Node("dead", 1) }, 3},
		"a function is free":              {"a", "full", 0, func(c *statetest.Cluster) { c.Node("full", 1) }, 1},
		"a path is back":                  {"x", "lost", 0, func(c *statetest.Cluster) { c.Node("lost", 4) }, 1},
		"nothing was refused":             {"a", "n1", 0, func(c *statetest.Cluster) { c.Node("dead", 1) }, 0},
		"a pod without volumes of Moor's": {"unknown", "dead", 0, func(c *statetest.Cluster) { c.Node("dead", 1) }, 0},
		"a node gets worse":               {"a", "dead", 0, func(c *statetest.Cluster) { c.Dead("n1") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := statetest.New().Volume("a").VolumeOf("x", "v").Node("n1", 4).Node("full", 0).Dead("dead").Lost("lost", "x")
				pods := refused.New(clock.RealClock{}, Keep)
				c.OnOpened(pods.Opened)
				signal := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: SignalName}}
				tries := 0
				api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(signal).Build(), interceptor.Funcs{
					Patch: func(ctx context.Context, cl client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
						if tries++; tries <= test.fails {
							return errors.New("the API server does not answer")
						}
						return cl.Patch(ctx, o, patch, opts...)
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					ended <- (&Retry{Client: api, Namespace: "ns", Refused: pods, Clock: clock.RealClock{}}).Start(ctx)
				}()

				h := handler(t, live{c}, func(o *Options) { o.Refused = pods })
				ask[extenderv1.ExtenderFilterResult](t, h, "/filter", question([]string{test.claim}, test.asked))
				time.Sleep(time.Minute)
				synctest.Wait()
				if tries != 0 {
					t.Errorf("%d writes while nothing had changed", tries)
				}
				test.change(c)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if tries != test.want {
					t.Errorf("%d writes, want %d", tries, test.want)
				}
				if err := api.Get(ctx, client.ObjectKeyFromObject(signal), signal); err != nil {
					t.Fatal(err)
				}
				if told := signal.Annotations[OpenedAnnotation]; (told != "") != (test.want > 0) {
					t.Errorf("%s is %q", OpenedAnnotation, told)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// live is a source whose index changes.
type live struct{ *statetest.Cluster }

func (live) Ready() error { return nil }

// Without the object the words say what makes it.
func TestSignalIsMissing(t *testing.T) {
	r := &Retry{Client: fake.NewClientBuilder().Build(), Namespace: "ns", Clock: clock.RealClock{}}
	err := r.signal(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "ns/scheduler-extender") || !strings.Contains(err.Error(), "deploy/scheduler/rbac.yaml") {
		t.Errorf("%v does not say which object is missing and what makes it", err)
	}
}

//go:build api

package heartbeats

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

// 5,000 nodes may cost this many writes a second at each API server.
const (
	wholeNodes  = 5000
	wholeWrites = 750 // a Lease each 10 s, and each minute an object and its mirror
	// fixed is what does not grow with the nodes: the self-heartbeat each second.
	fixed = 1.0
)

var (
	nodes = flag.Int("heartbeat.nodes", 200, "simulated nodes; the cost is scaled to 5,000")
	// All objects may be written in the same half of a minute.
	lasting = flag.Duration("heartbeat.for", time.Minute, "how long writes are counted; each object is written once a minute")
)

var clusters apiserver.Clusters

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(apiserver.Run(m, &clusters))
}

// TestCost counts the writes of steady beats, and then stops one node: the
// clocks of all machines are hours apart, and no other node is taken for dead.
func TestCost(t *testing.T) {
	f := newFleet(t, *nodes)
	startController(t)
	f.beat(t)
	f.await(t, "all are alive", alive)
	apart(t, heartbeat.DefaultPeriod) // the first beats spread over one period
	begin, first := time.Now(), writes(t)
	apart(t, *lasting)
	took, last := time.Since(begin).Seconds(), writes(t)
	for cluster := range first {
		rate := (last[cluster] - first[cluster]) / took
		whole := (rate-fixed)/float64(*nodes)*wholeNodes + fixed
		t.Logf("heartbeat.writes_per_second.%d at the API server of the %s cluster: %.1f (measured: %.1f/s with %d nodes for %.0f s)", wholeNodes, cluster, whole, rate, *nodes, took)
		if whole > wholeWrites {
			t.Errorf("%s cluster: %.1f writes/s, at most %d are allowed", cluster, whole, wholeWrites)
		}
		if whole < wholeNodes/heartbeat.DefaultPeriod.Seconds()*0.2 {
			t.Errorf("%s cluster: %.1f writes/s are too few: hardly a node beats", cluster, whole)
		}
	}
	f.stop(0)
	f.await(t, "the one that stopped is silent, and no other", func(n *moorv1alpha1.DPUStorageNode) bool {
		if n.Name != hostName(0) {
			if !alive(n) {
				t.Errorf("%s is taken for dead: %+v", n.Name, n.Status.Conditions)
			}
			return true
		}
		return meta.IsStatusConditionFalse(n.Status.Conditions, moorv1alpha1.ConditionHostAlive) &&
			meta.IsStatusConditionFalse(n.Status.Conditions, moorv1alpha1.ConditionDPUAlive)
	})
}

func alive(n *moorv1alpha1.DPUStorageNode) bool {
	return meta.IsStatusConditionTrue(n.Status.Conditions, moorv1alpha1.ConditionHostAlive) &&
		meta.IsStatusConditionTrue(n.Status.Conditions, moorv1alpha1.ConditionDPUAlive)
}

// apart lets time pass.
func apart(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended early")
	}
}

// fleet is the simulated nodes: the real heartbeats of a host and a DPU each.
type fleet struct {
	nodes     int
	host, dpu client.Client
	stops     []context.CancelFunc
	done      sync.WaitGroup
}

func hostName(i int) string { return fmt.Sprintf("host-%d", i) }
func dpuName(i int) string  { return fmt.Sprintf("dpu-%d", i) }

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{nodes: n, host: unlimited(t, clusters.HostConfig, clusters.Host), dpu: unlimited(t, clusters.DPUConfig, clusters.DPU)}
	var made sync.WaitGroup
	for i := range n {
		made.Go(func() {
			node := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: hostName(i)}}
			node.Spec.DPUName = dpuName(i)
			for _, o := range []client.Object{node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: hostName(i)}}} {
				if err := f.host.Create(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	made.Wait()
	return f
}

// unlimited is a client like c, without its limit of requests: here it stands
// for thousands.
func unlimited(t *testing.T, config *rest.Config, c client.Client) client.Client {
	t.Helper()
	free := rest.CopyConfig(config)
	free.QPS = -1
	out, err := client.New(free, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// beat starts all hearts; they stop when the test ends.
func (f *fleet) beat(t *testing.T) {
	t.Helper()
	state := moorv1alpha1.DPUState{
		SNAPReady: true, Plugins: []moorv1alpha1.PluginState{{Name: "local", Ready: true}},
		Functions: []moorv1alpha1.FunctionCount{{Type: "pf", Total: 2, Free: 2}, {Type: "vf", Total: 64, Free: 60}},
		Host:      &moorv1alpha1.HostObservation{Alive: true, Evidence: "it answers"},
	}
	for i := range f.nodes {
		ctx, stop := context.WithCancel(t.Context())
		f.stops = append(f.stops, stop)
		host := heartbeat.Host(heartbeat.Options{Client: f.host, Live: f.host, Name: hostName(i), Namespace: kit.Namespace, Version: "v1", Clock: wrong()},
			func(context.Context) (moorv1alpha1.HostState, error) {
				return moorv1alpha1.HostState{MaxVolumes: 64}, nil
			})
		dpu := heartbeat.DPU(heartbeat.Options{Client: f.dpu, Live: f.dpu, Name: dpuName(i), Namespace: kit.Namespace, Version: "v1", Clock: wrong()},
			func(context.Context) (moorv1alpha1.DPUState, error) { return *state.DeepCopy(), nil })
		for _, h := range []*heartbeat.Heart{host, dpu} {
			f.done.Go(func() {
				apartOr(ctx, time.Duration(rand.Float64()*float64(heartbeat.DefaultPeriod)))
				_ = h.Start(ctx)
			})
		}
	}
	t.Cleanup(func() {
		for _, stop := range f.stops {
			stop()
		}
		f.done.Wait()
	})
}

// apartOr waits: thousands of machines do not start in the same second.
func apartOr(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (f *fleet) stop(i int) { f.stops[i]() }

// await waits until all nodes are as wanted.
func (f *fleet) await(t *testing.T, what string, is func(*moorv1alpha1.DPUStorageNode) bool) {
	t.Helper()
	const patience = 2 * nodehealth.DefaultTimeout
	left := 0
	for end := time.Now().Add(patience + time.Minute); time.Now().Before(end); apart(t, time.Second) {
		var list moorv1alpha1.DPUStorageNodeList
		if err := clusters.Host.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		left = 0
		for i := range list.Items {
			if !is(&list.Items[i]) {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	t.Fatalf("%s: not so for %d nodes", what, left)
}

// writes is how many requests that write each API server has answered, by
// cluster.
func writes(t *testing.T) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for cluster, config := range map[string]*rest.Config{"host": clusters.HostConfig, "dpu": clusters.DPUConfig} {
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if out[cluster], err = sum(raw); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// sum adds up the writes of apiserver_request_total that heartbeats could cause:
// of Moor's kinds, of leases and of events.
func sum(metrics []byte) (total float64, err error) {
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		labels, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(labels, "apiserver_request_total{") || strings.Contains(labels, `dry_run="All"`) {
			continue
		}
		if !strings.Contains(labels, `group="storage.moor.dev"`) && !strings.Contains(labels, `group="coordination.k8s.io"`) && !strings.Contains(labels, `resource="events"`) {
			continue
		}
		for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
			if strings.Contains(labels, `verb="`+verb+`"`) {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return 0, fmt.Errorf("read %q: %w", lines.Text(), err)
				}
				total += v
			}
		}
	}
	return total, lines.Err()
}

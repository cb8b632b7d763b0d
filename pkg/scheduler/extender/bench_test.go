package extender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/moor-storage/moor/pkg/scheduler/state"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

// copiesEach is how many nodes have a volume: a primary and two replicas.
const copiesEach = 3

// large is a cluster of so many nodes and attachments.
func large(nodes, attachments int) *state.Index {
	c := statetest.New()
	for i := range nodes {
		c.Node(nodeName(i), 32)
	}
	for i := range attachments {
		claim := fmt.Sprint("claim-", i/copiesEach)
		state := statetest.PreEmulated
		if i%copiesEach == 0 {
			c.Volume(claim)
			state = statetest.Attached
		}
		c.Attachment(claim, nodeName((i/copiesEach*7+i%copiesEach*13)%nodes), state)
	}
	return c.Index()
}

func nodeName(i int) string { return fmt.Sprintf("worker-%05d.cluster.example", i) }

// asked is what a scheduler asks about a pod with so many claims, the i-th of
// its kind.
func asked(nodes, volumes, claims, i int) *extenderv1.ExtenderArgs {
	var names, used []string
	for n := range nodes {
		names = append(names, nodeName(n))
	}
	for c := range claims {
		used = append(used, fmt.Sprint("claim-", (i*claims+c)%volumes))
	}
	return &extenderv1.ExtenderArgs{Pod: statetest.Pod(used...), NodeNames: &names}
}

// BenchmarkInProcess is the answer alone, without HTTP and JSON.
func BenchmarkInProcess(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		for _, attachments := range []int{1000, 10_000, 50_000} {
			index := large(nodes, attachments)
			for _, claims := range []int{1, 8} {
				args := asked(nodes, attachments/copiesEach, claims, 1)
				shape := fmt.Sprintf("%d.%d.%d", nodes, attachments, claims)
				b.Run("extender.prioritize."+shape, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if len(prioritize(index, args)) == 0 {
							b.Fatal("no node is warm")
						}
					}
				})
				b.Run("extender.filter."+shape, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						filter(index, args)
					}
				})
			}
		}
	}
}

// BenchmarkHTTP asks both verbs, as a scheduler does for each pod, over one
// connection, of a cluster with 5,000 nodes and 10,000 volumes.
func BenchmarkHTTP(b *testing.B) {
	const nodes, volumes = 5000, 10_000
	server := httptest.NewServer(handler(b, &source{index: large(nodes, volumes*copiesEach)}, nil))
	defer server.Close()
	for name, claims := range map[string]int{"stateless": 0, "1claim": 1, "8claims": 8} {
		var bodies [][]byte
		for i := range 16 {
			body, err := json.Marshal(asked(nodes, volumes, claims, i))
			if err != nil {
				b.Fatal(err)
			}
			bodies = append(bodies, body)
		}
		b.Run("extender.http.5000."+name, func(b *testing.B) {
			both := [2][]time.Duration{}
			cpu := cpuTime(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for v, verb := range []string{"/filter", "/prioritize"} {
					begin := time.Now()
					send(b, server.URL+verb, bodies[i%len(bodies)])
					both[v] = append(both[v], time.Since(begin))
				}
			}
			calls := slices.Sorted(slices.Values(slices.Concat(both[:]...)))
			b.ReportMetric(quantile(calls, .5), "p50-ms")
			b.ReportMetric(quantile(calls, .99), "p99-ms")
			for v, verb := range []string{"filter", "prioritize"} {
				slices.Sort(both[v])
				b.ReportMetric(quantile(both[v], .5), verb+"-p50-ms")
				b.ReportMetric(quantile(both[v], .99), verb+"-p99-ms")
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pods/s")
			// On a busy machine times are other processes'; this is ours, with
			// the client's part.
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/pod")
		})
	}
}

// cpuTime is what this process has used of the processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func send(b *testing.B, url string, body []byte) {
	answer, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status, err)
	}
	_ = answer.Body.Close()
}

// quantile of sorted times, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds()) / 1000
}

package pods

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the metrics of an agent.
type counts struct {
	reports   *prometheus.CounterVec
	cleared   *prometheus.CounterVec
	endpoints prometheus.Gauge
	renewed   prometheus.Counter
}

// How a directory was cleared.
const (
	clearedPlainly = "plainly"
	clearedLazily  = "lazily"
)

func newCounts(to prometheus.Registerer) (*counts, error) {
	c := &counts{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moor_pods_reports_total", Help: "Reports of what helper pods have left, by the kind that the pod works for, and whether there was a problem.",
		}, []string{"kind", "result"}),
		cleared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moor_pods_cleared_total", Help: "Directories of helper pods that were cleared, by how what was mounted there was unmounted.",
		}, []string{"how"}),
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "moor_pods_endpoints", Help: "CSI endpoints of PavProvisioners that are served on this node.",
		}),
		renewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "moor_pods_renewed_total", Help: "Volumes that were shown anew to their pods after their staging pods had died.",
		}),
	}
	for _, m := range []prometheus.Collector{c.reports, c.cleared, c.endpoints, c.renewed} {
		if err := to.Register(m); err != nil {
			return nil, fmt.Errorf("register the metrics of pods as volumes: %w", err)
		}
	}
	return c, nil
}

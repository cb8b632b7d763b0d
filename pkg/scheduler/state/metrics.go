package state

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Register adds the index's metrics: its age, whether it is complete, and how
// many objects it holds.
func (s *Store) Register(to prometheus.Registerer) error {
	collectors := []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "moor_extender_index_age_seconds",
			Help: "Time since the API server last answered; NaN if it never did.",
		}, func() float64 {
			age, ever := s.Age()
			if !ever {
				return math.NaN()
			}
			return age.Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "moor_extender_index_complete",
			Help: "1 once the first list of every kind is in the index, else 0.",
		}, func() float64 {
			if s.Ready() != nil {
				return 0
			}
			return 1
		}),
	}
	for kind, count := range map[string]func(Size) int{
		"claims":       func(n Size) int { return n.Claims },
		"volumes":      func(n Size) int { return n.Volumes },
		"warm_volumes": func(n Size) int { return n.WarmVolumes },
		"nodes":        func(n Size) int { return n.Nodes },
	} {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "moor_extender_index_objects", Help: "Objects in the index.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(count(s.Index().Size())) }))
	}
	for _, c := range collectors {
		if err := to.Register(c); err != nil {
			return fmt.Errorf("register the metrics of the index: %w", err)
		}
	}
	return nil
}

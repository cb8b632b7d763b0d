package state

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterAge adds the index's age to the metrics, of a store that is probed.
// The name begins with "moor_" and whose index it is.
func (s *Store) RegisterAge(to prometheus.Registerer, whose string) error {
	return register(to, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix(whose) + "age_seconds",
		Help: "Time since the API server last answered; NaN if it never did.",
	}, func() float64 {
		age, ever := s.Age()
		if !ever {
			return math.NaN()
		}
		return age.Seconds()
	}))
}

// Register adds the index's other metrics, by the same names: whether it is
// complete, and how many objects it holds.
func (s *Store) Register(to prometheus.Registerer, whose string) error {
	collectors := []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix(whose) + "complete",
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
			Name: prefix(whose) + "objects", Help: "Objects in the index.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(count(s.Index().Size())) }))
	}
	return register(to, collectors...)
}

func prefix(whose string) string { return "moor_" + whose + "_index_" }

func register(to prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := to.Register(c); err != nil {
			return fmt.Errorf("register the metrics of the index: %w", err)
		}
	}
	return nil
}

package helper

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// buckets are the upper bounds in seconds of the histogram: from a pod whose image is there to one
// that may need long.
var buckets = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}

// Metrics tell how helper pods end:
// moor_helper_pod_seconds{phase,result} from when they were asked for, and
// moor_helper_pods_lost_total of those that staged a volume, had to run on, and died.
type Metrics struct {
	seconds *prometheus.HistogramVec
	lost    prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "moor_helper_pod_seconds",
			Help:    "Seconds from when a helper pod was asked for until it had done its work or failed, by phase and result (Succeeded, Failed).",
			Buckets: buckets,
		}, []string{"phase", "result"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "moor_helper_pods_lost_total",
			Help: "Pods that had staged a volume, had to run on, and died.",
		}),
	}
	for _, c := range []prometheus.Collector{m.seconds, m.lost} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of helper pods: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) ended(phase pods.Phase, v Verdict, after time.Duration) {
	if m == nil {
		return
	}
	result := "Succeeded"
	if v == Failed {
		result = "Failed"
	}
	m.seconds.WithLabelValues(string(phase), result).Observe(max(0, after.Seconds()))
}

// Lost counts a pod that had staged a volume and died.
func (m *Metrics) Lost() {
	if m != nil {
		m.lost.Inc()
	}
}

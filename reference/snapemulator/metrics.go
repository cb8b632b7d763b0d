package snapemulator

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moor-storage/moor/internal/snaprpc"
)

// metrics are the emulator's own; methods that it does not know share a label,
// so that a caller cannot grow them without bound.
type metrics struct {
	seconds *prometheus.HistogramVec
	visible prometheus.Gauge
	known   map[string]handler
}

func newMetrics(reg prometheus.Registerer, known map[string]handler) *metrics {
	m := &metrics{
		known: known,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "moor_snapemu_rpc_seconds",
			Help:    "Time in which a request was executed, by method and code (0 for success).",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60},
		}, []string{"method", "code"}),
		visible: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "moor_snapemu_visible_namespaces",
			Help: "Namespaces that the host can reach now.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.seconds, m.visible)
	}
	return m
}

func (m *metrics) observe(method string, failure *snaprpc.Error, took time.Duration) {
	if _, ok := m.known[method]; !ok {
		method = "unknown"
	}
	code := 0
	if failure != nil {
		code = failure.Code
	}
	m.seconds.WithLabelValues(method, strconv.Itoa(code)).Observe(took.Seconds())
}

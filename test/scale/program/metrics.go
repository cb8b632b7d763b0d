package program

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics are what a program's counters and gauges show, by name.
type metrics map[string][]sample

type sample struct {
	labels map[string]string
	value  float64
}

// parse reads Prometheus' text.
func parse(text string) (metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	out := metrics{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			// Of what it is not, a metric says 0.
			s := sample{labels: map[string]string{}, value: m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()}
			for _, label := range m.GetLabel() {
				s.labels[label.GetName()] = label.GetValue()
			}
			out[name] = append(out[name], s)
		}
	}
	return out, nil
}

// by adds up what is of one name, for each value of a label.
func (m metrics) by(name, label string) map[string]float64 {
	out := map[string]float64{}
	for _, s := range m[name] {
		out[s.labels[label]] += s.value
	}
	return out
}

// sum adds up what is of one name.
func (m metrics) sum(name string) (out float64) {
	for _, s := range m[name] {
		out += s.value
	}
	return out
}

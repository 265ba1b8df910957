package kubeproxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kplab/lab"
)

// Metrics is one scrape of a kube-proxy's /metrics.
type Metrics struct {
	text     string
	families map[string]*dto.MetricFamily
}

var _ lab.Metrics = (*Metrics)(nil)

// ParseMetrics reads metrics in the Prometheus text format.
func ParseMetrics(text string) (*Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("kube-proxy's metrics: %w", err)
	}
	return &Metrics{text: text, families: families}, nil
}

// Text is the scrape as it was read, for evidence.
func (m *Metrics) Text() string { return m.text }

// Names implements lab.Metrics.
func (m *Metrics) Names() []string { return slices.Sorted(maps.Keys(m.families)) }

// Sum implements lab.Metrics.
func (m *Metrics) Sum(name string, labels map[string]string) (value float64, present bool) {
	family, read := m.families[name], simpleValue
	if family == nil {
		for suffix, histogram := range map[string]func(*dto.Metric) float64{"_sum": sumValue, "_count": countValue} {
			if base, ok := strings.CutSuffix(name, suffix); ok && m.families[base] != nil {
				family, read = m.families[base], histogram
			}
		}
	}
	if family == nil {
		return 0, false
	}
	for _, sample := range family.GetMetric() {
		if hasLabels(sample, labels) {
			value += read(sample)
		}
	}
	return value, true
}

func hasLabels(sample *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range sample.GetLabel() {
		if want, ok := labels[l.GetName()]; ok {
			if l.GetValue() != want {
				return false
			}
			found++
		}
	}
	return found == len(labels)
}

// The getters of what a sample does not have return 0.
func simpleValue(s *dto.Metric) float64 {
	return s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
}

func sumValue(s *dto.Metric) float64 {
	return s.GetHistogram().GetSampleSum() + s.GetSummary().GetSampleSum()
}

func countValue(s *dto.Metric) float64 {
	return float64(s.GetHistogram().GetSampleCount() + s.GetSummary().GetSampleCount())
}

// Package metrics declares the fleet's metrics in one table. Other packages create instruments only through it.
//
// A new metric is a row of Table; the package that records the metric creates the instrument with an Instruments.
// The table is rendered as docs/metrics.md by
//
//	go test ./internal/metrics -update
//
// The package imports only OpenTelemetry's API.
package metrics

import (
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Kind is the kind of a metric's instrument.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"         // only grows
	UpDown    Kind = "up-down counter" // grows and shrinks
	Histogram Kind = "histogram"       // a distribution
	Gauge     Kind = "gauge"           // a current value
)

// Seconds is the unit of metrics that measure time; all others count things.
const Seconds = "s"

// Metric describes one metric.
type Metric struct {
	Name       string // OpenTelemetry's name, with dots
	Kind       Kind
	Unit       string // in UCUM: Seconds, or the counted thing in braces
	Help       string // what is counted or measured
	Attributes []Attribute
}

// Attribute is a dimension of a metric.
type Attribute struct {
	Name    string
	Values  []string // all possible values, or nil if the set is open
	Meaning string
}

// Prometheus returns the metric's name at /metrics.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == Seconds {
		name += "_seconds"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Instruments creates a meter's instruments. It keeps errors for Err, so that a caller checks only once.
type Instruments struct {
	meter metric.Meter
	errs  []error
}

// New returns the Instruments of a meter. The instruments of a nil meter record nothing.
func New(meter metric.Meter) *Instruments {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	return &Instruments{meter: meter}
}

// Counter creates a counter that the caller adds to.
func (i *Instruments) Counter(m Metric) metric.Int64Counter {
	c, err := i.meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Counter, c, err)
}

// UpDown creates an up-down counter that the caller adds to.
func (i *Instruments) UpDown(m Metric) metric.Int64UpDownCounter {
	c, err := i.meter.Int64UpDownCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, UpDown, c, err)
}

// Histogram creates a histogram of durations.
func (i *Instruments) Histogram(m Metric) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Histogram, h, err)
}

// ObservedCounter creates a counter whose value a callback reads.
func (i *Instruments) ObservedCounter(m Metric) metric.Int64ObservableCounter {
	c, err := i.meter.Int64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Counter, c, err)
}

// Gauge creates a gauge of a number of things, whose value a callback reads.
func (i *Instruments) Gauge(m Metric) metric.Int64ObservableGauge {
	g, err := i.meter.Int64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Gauge, g, err)
}

// TimeGauge creates a gauge of a duration in seconds, whose value a callback reads.
func (i *Instruments) TimeGauge(m Metric) metric.Float64ObservableGauge {
	g, err := i.meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Gauge, g, err)
}

// Err returns the errors so far.
func (i *Instruments) Err() error { return errors.Join(i.errs...) }

// Observe registers a callback that reads the values of all observed instruments at once. It returns Err if an
// instrument could not be created.
func (i *Instruments) Observe(read metric.Callback, observed ...metric.Observable) (unregister func(), err error) {
	if err := i.Err(); err != nil {
		return nil, err
	}
	r, err := i.meter.RegisterCallback(read, observed...)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return func() { _ = r.Unregister() }, nil
}

// check returns the instrument. It keeps an error for Err if the instrument was not created, or if the table declares
// another kind.
func check[T any](i *Instruments, m Metric, want Kind, instrument T, err error) T {
	if err == nil && m.Kind != want {
		err = fmt.Errorf("the table declares a %s, not a %s", m.Kind, want)
	}
	if err != nil {
		i.errs = append(i.errs, fmt.Errorf("create metric %s: %w", m.Name, err))
	}
	return instrument
}

// Package metrics is the one table of the fleet's metrics, and the only place that creates instruments.
//
// A new metric is a row of Table; a package that records it creates the instrument with an Instruments.
// docs/metrics.md is rendered from the table by
//
//	go test ./internal/metrics -update
//
// The package imports the API of OpenTelemetry only.
package metrics

import (
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Kind is the instrument of a metric.
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
	Name string // with dots, as OpenTelemetry has it
	Kind Kind
	Unit string // as UCUM writes it: Seconds, or what is counted, in braces
	Help string // what is counted or measured
	// Attributes are what the metric is divided by.
	Attributes []Attribute
}

// Attribute is a dimension of a metric.
type Attribute struct {
	Name    string
	Values  []string // all that occur; nil: an open set
	Meaning string
}

// Prometheus returns the name of the metric at /metrics.
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

// Instruments creates instruments of one meter. Errors are kept for Err, so that a caller checks once.
type Instruments struct {
	meter metric.Meter
	errs  []error
}

// New returns the instruments of a meter; those of a nil meter record nothing.
func New(meter metric.Meter) *Instruments {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	return &Instruments{meter: meter}
}

// Counter creates a counter that its user adds to.
func (i *Instruments) Counter(m Metric) metric.Int64Counter {
	c, err := i.meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Counter, c, err)
}

// UpDown creates an up-down counter that its user adds to.
func (i *Instruments) UpDown(m Metric) metric.Int64UpDownCounter {
	c, err := i.meter.Int64UpDownCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, UpDown, c, err)
}

// Histogram creates a histogram of times.
func (i *Instruments) Histogram(m Metric) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Histogram, h, err)
}

// ObservedCounter creates a counter whose value a callback reads.
func (i *Instruments) ObservedCounter(m Metric) metric.Int64ObservableCounter {
	c, err := i.meter.Int64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Counter, c, err)
}

// Gauge creates a gauge of a count, whose value a callback reads.
func (i *Instruments) Gauge(m Metric) metric.Int64ObservableGauge {
	g, err := i.meter.Int64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Gauge, g, err)
}

// TimeGauge creates a gauge of a time in seconds, whose value a callback reads.
func (i *Instruments) TimeGauge(m Metric) metric.Float64ObservableGauge {
	g, err := i.meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	return check(i, m, Gauge, g, err)
}

// Err returns what went wrong so far.
func (i *Instruments) Err() error { return errors.Join(i.errs...) }

// Observe registers a callback that reads the values of observed instruments, all at one moment.
// It returns Err if an instrument could not be created.
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

func check[T any](i *Instruments, m Metric, want Kind, instrument T, err error) T {
	if err == nil && m.Kind != want {
		err = fmt.Errorf("it is a %s in the table, not a %s", m.Kind, want)
	}
	if err != nil {
		i.errs = append(i.errs, fmt.Errorf("create metric %s: %w", m.Name, err))
	}
	return instrument
}

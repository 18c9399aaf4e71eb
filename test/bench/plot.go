package main

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
)

// plot is a line chart with a logarithmic vertical axis.
type plot struct {
	Title string
	X     []string // labels of the horizontal axis
	Lines []line
}

// line has a value for each label of the horizontal axis, and the upper end of the value's spread.
type line struct {
	Name         string
	Points, High []float64
}

// The dimensions of a plot in pixels.
const (
	plotWidth, plotHeight        = 760, 420
	plotLeft, plotTop, plotBelow = 60, 40, 50
	plotRight                    = 170
)

var plotColours = []string{"#0b6e4f", "#c8553d", "#3d5a80", "#8d6a9f", "#b08900"}

// svgLine is a line of a plot as the template needs it.
type svgLine struct{ Name, Colour, Line, Band, LabelY string }

// tick is a label of an axis.
type tick struct{ At, Text string }

var plotTemplate = template.Must(template.New("plot").Parse(`<svg xmlns="http://www.w3.org/2000/svg"
 viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{{.Left}}" y="22" font-size="14">{{.Title}}</text>
{{range .Ys}}<line x1="{{$.Left}}" x2="{{$.End}}" y1="{{.At}}" y2="{{.At}}" stroke="#ddd"/>
<text x="52" y="{{.At}}" text-anchor="end" dominant-baseline="middle">{{.Text}}</text>
{{end}}{{range .Xs}}<text x="{{.At}}" y="{{$.Bottom}}" text-anchor="middle">{{.Text}}</text>
{{end}}{{range .Lines}}<polygon points="{{.Band}}" fill="{{.Colour}}" fill-opacity="0.12"/>
<polyline points="{{.Line}}" fill="none" stroke="{{.Colour}}" stroke-width="2"/>
<text x="{{$.Label}}" y="{{.LabelY}}" fill="{{.Colour}}" dominant-baseline="middle">{{.Name}}</text>
{{end}}</svg>
`))

// write draws the plot as SVG.
func (p plot) write(w io.Writer) error {
	low, high := p.bounds()
	y := func(v float64) float64 {
		share := (math.Log10(max(v, low)) - math.Log10(low)) / (math.Log10(high) - math.Log10(low))
		return plotHeight - plotBelow - share*(plotHeight-plotTop-plotBelow)
	}
	x := func(i int) float64 {
		return plotLeft + float64(i)*(plotWidth-plotLeft-plotRight)/float64(max(1, len(p.X)-1))
	}
	view := struct {
		Title                            string
		Width, Height, Left, End, Bottom int
		Label                            int
		Xs, Ys                           []tick
		Lines                            []svgLine
	}{
		Title: p.Title, Width: plotWidth, Height: plotHeight, Left: plotLeft, End: plotWidth - plotRight,
		Bottom: plotHeight - plotBelow + 22, Label: plotWidth - plotRight + 10,
	}
	for i, name := range p.X {
		view.Xs = append(view.Xs, tick{number(x(i)), name})
	}
	for v := low; v <= high*1.001; v *= 10 {
		view.Ys = append(view.Ys, tick{number(y(v)), fmt.Sprintf("%g", v)})
	}
	usedRows := map[int]bool{} // rows that have a line's name
	for i, l := range p.Lines {
		var points, back []string
		for j, v := range l.Points {
			points = append(points, number(x(j))+","+number(y(v)))
			back = append([]string{number(x(j)) + "," + number(y(l.High[j]))}, back...)
		}
		row := int(y(l.Points[len(l.Points)-1])) / 16
		for usedRows[row] {
			row++
		}
		usedRows[row] = true
		view.Lines = append(view.Lines, svgLine{
			l.Name, plotColours[i%len(plotColours)], strings.Join(points, " "),
			strings.Join(append(points, back...), " "), number(float64(row*16 + 8)),
		})
	}
	return plotTemplate.Execute(w, view)
}

// bounds returns the powers of ten around all values.
func (p plot) bounds() (low, high float64) {
	low, high = math.Inf(1), 0
	for _, l := range p.Lines {
		for i, v := range l.Points {
			low, high = min(low, v), max(high, v, l.High[i])
		}
	}
	if high <= 0 {
		return 1, 10
	}
	low = math.Pow(10, math.Floor(math.Log10(max(low, 0.001))))
	return low, max(math.Pow(10, math.Ceil(math.Log10(high))), low*10)
}

func number(v float64) string { return fmt.Sprintf("%.1f", v) }

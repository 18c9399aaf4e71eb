package workflow

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// layers returns the steps of each layer, and the layer of each step: a step's layer follows those of the steps that it
// needs. The steps under finally come after all others.
func (p *Plan) layers() (layers [][]int, layer []int) {
	order := make([]int, len(p.steps))
	for i := range order {
		order[i] = i
	}
	// A step has more steps before it than each of those that it needs, so it comes after them.
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(len(p.steps[i].before), len(p.steps[j].before)) })
	layer = make([]int, len(p.steps))
	last := 0 // the first layer of the steps under finally
	for _, i := range order {
		s := p.steps[i]
		if s.finally {
			layer[i] = last
		}
		for _, j := range s.needs {
			layer[i] = max(layer[i], layer[j]+1)
		}
		if !s.finally {
			last = max(last, layer[i]+1)
		}
	}
	layers = make([][]int, slices.Max(layer)+1)
	for i, d := range layer {
		layers[d] = append(layers[d], i)
	}
	return layers, layer
}

// label returns what a step does in a few words.
func (s *step) label() string {
	out := s.kind()
	switch {
	case s.Skill != "":
		out += " " + s.Skill
	case s.Tool != "":
		out += " " + s.Tool
	case s.Wait != nil && s.Wait.For != "":
		out += " " + s.Wait.For
	case s.Wait != nil && s.Wait.Event != nil:
		out += " for " + s.Wait.Event.Type
	case s.Emit != nil:
		out += " " + s.Emit.Type
	}
	if s.ForEach != nil {
		out += ", for each"
	}
	if s.finally {
		out += ", finally"
	}
	return out
}

// Text draws the steps as text: one line for each, with the steps that it needs. run may be nil.
func (p *Plan) Text(run *schemas.WorkflowRun) string {
	width := 0
	for _, s := range p.steps {
		width = max(width, len(s.ID))
	}
	layers, _ := p.layers()
	var b strings.Builder
	for d, layer := range layers {
		for _, i := range layer {
			s := p.steps[i]
			line := fmt.Sprintf("%s%-*s  %s", strings.Repeat("  ", d), width, s.ID, s.label())
			if len(s.needs) > 0 {
				needs := make([]string, len(s.needs))
				for k, j := range s.needs {
					needs[k] = p.steps[j].ID
				}
				line += "  ← " + strings.Join(needs, ", ")
			}
			if s.When != "" {
				line += "  when " + text.OneLine(s.When)
			}
			if run != nil {
				line += "  [" + string(run.Steps[i].Status) + "]"
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

const (
	boxWidth, boxHeight = 200, 48
	gapX, gapY          = 30, 44
	margin              = 20
)

var colours = map[schemas.WorkflowStatus]string{
	schemas.WorkflowRunning: "#cfe2ff", schemas.WorkflowWaiting: "#fff3cd", schemas.WorkflowSucceeded: "#d1e7dd",
	schemas.WorkflowFailed: "#f8d7da", schemas.WorkflowSkipped: "#eeeeee", schemas.WorkflowCancelled: "#e2e3e5",
}

// SVG draws the steps as a picture. run may be nil.
func (p *Plan) SVG(run *schemas.WorkflowRun) string {
	layers, layer := p.layers()
	widest := 0
	for _, l := range layers {
		widest = max(widest, len(l))
	}
	width := 2*margin + widest*boxWidth + (widest-1)*gapX
	height := 2*margin + len(layers)*boxHeight + (len(layers)-1)*gapY
	type point struct{ x, y int }
	at := make([]point, len(p.steps))
	for d, l := range layers {
		left := (width - len(l)*boxWidth - (len(l)-1)*gapX) / 2
		for k, i := range l {
			at[i] = point{left + k*(boxWidth+gapX), margin + d*(boxHeight+gapY)}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.Definition.Name))
	line := func(from, to int, style string) {
		x1, y1 := at[from].x+boxWidth/2, at[from].y+boxHeight
		x2, y2 := at[to].x+boxWidth/2, at[to].y
		fmt.Fprintf(&b, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="#666"%s/>`+"\n",
			x1, y1, x1, (y1+y2)/2, x2, (y1+y2)/2, x2, y2, style)
	}
	lastMain := 0
	for i, s := range p.steps {
		if !s.finally {
			lastMain = max(lastMain, layer[i])
		}
	}
	for i, s := range p.steps {
		for _, j := range s.needs {
			line(j, i, "")
		}
		if s.finally && len(s.needs) == 0 {
			for j, other := range p.steps {
				if !other.finally && layer[j] == lastMain {
					line(j, i, ` stroke-dasharray="4"`)
				}
			}
		}
	}
	for i, s := range p.steps {
		fill, label := "#ffffff", text.Truncate(s.label(), 30)
		if run != nil {
			status := run.Steps[i].Status
			fill = cmp.Or(colours[status], fill)
			label = text.Truncate(s.label(), 18) + " · " + string(status)
		}
		x, y := at[i].x, at[i].y
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="#333"/>`+"\n",
			x, y, boxWidth, boxHeight, fill)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-weight="bold">%s</text>`+"\n",
			x+boxWidth/2, y+20, html.EscapeString(s.ID))
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="#555">%s</text>`+"\n",
			x+boxWidth/2, y+37, html.EscapeString(label))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

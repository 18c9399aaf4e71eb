package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// words were found to have several meanings in one repository. A word counts once for each package beyond
// the first that declares a function, method, type or file of that name.
var words = strings.Fields("settle take link collect entry plain shown answer head seen patient tell said heads wire")

// ambiguousWords lists the words that more than one package declares, or one package declares twice.
func (c *checkout) ambiguousWords() string {
	homes := map[string]map[string]bool{}
	note := func(name, place string) {
		if name = strings.ToLower(name); slices.Contains(words, name) {
			if homes[name] == nil {
				homes[name] = map[string]bool{}
			}
			homes[name][place] = true
		}
	}
	c.functions(func(p *pkg, _ *file, d *ast.FuncDecl) { note(d.Name.Name, p.path+"."+receiver(d)) })
	c.types(func(p *pkg, spec *ast.TypeSpec) { note(spec.Name.Name, p.path+" type") })
	var list []string
	for word, places := range homes {
		if len(places) > 1 {
			list = append(list, fmt.Sprintf("%s×%d", word, len(places)))
		}
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

// upward is the share of references between the files of a package, and of the packages below it, that
// run against the order in which the files build on one another. Files that refer to each other in a
// circle are put in the order with few such references (Eades, Lin and Smyth 1993).
func (c *checkout) upward(path string) string {
	graph, total := map[string]map[string]bool{}, 0
	for _, p := range c.packages {
		if p.path != path && !strings.HasPrefix(p.path, path+"/") {
			continue
		}
		for from, targets := range references(p) {
			from = p.path + "/" + from
			graph[from] = map[string]bool{}
			for to := range targets {
				graph[from][p.path+"/"+to] = true
				total++
			}
		}
	}
	if total == 0 {
		return "0 of 0"
	}
	back, place := 0, map[string]int{}
	for i, f := range order(graph) {
		place[f] = i
	}
	for from, targets := range graph {
		for to := range targets {
			if place[to] < place[from] {
				back++
			}
		}
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", back, total, 100*float64(back)/float64(total))
}

// references maps each file of a package to the files that declare what it uses: names of package level,
// and methods and fields whose name only one file declares.
func references(p *pkg) map[string]map[string]bool {
	declared, members := map[string]string{}, map[string]string{}
	member := func(name, file string) {
		if old, ok := members[name]; ok && old != file {
			file = "" // ambiguous without types
		}
		members[name] = file
	}
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					member(d.Name.Name, f.name)
				} else {
					declared[d.Name.Name] = f.name
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						declared[s.Name.Name] = f.name
					case *ast.ValueSpec:
						for _, n := range s.Names {
							declared[n.Name] = f.name
						}
					}
				}
			}
		}
	}
	out := map[string]map[string]bool{}
	for _, f := range p.files {
		uses := map[string]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				uses[members[n.Sel.Name]] = true
			case *ast.Ident:
				uses[declared[n.Name]] = true
			}
			return true
		})
		delete(uses, "")
		delete(uses, f.name)
		out[f.name] = uses
	}
	return out
}

// order returns the nodes so that few edges run from a later node to an earlier one: sinks last, sources
// first, and among the rest the node with the largest surplus of outgoing edges.
func order(graph map[string]map[string]bool) []string {
	left := map[string]bool{}
	for n := range graph {
		left[n] = true
	}
	degree := func(n string) (in, out int) {
		for m := range left {
			if graph[m][n] {
				in++
			}
			if graph[n][m] {
				out++
			}
		}
		return in, out
	}
	var head, tail []string
	for len(left) > 0 {
		best, surplus, sink := "", -1<<30, false
		nodes := make([]string, 0, len(left))
		for n := range left {
			nodes = append(nodes, n)
		}
		slices.Sort(nodes)
		for _, n := range nodes {
			in, out := degree(n)
			if out == 0 {
				best, sink = n, true
				break
			}
			if in == 0 {
				out = 1 << 20
			}
			if out-in > surplus {
				best, surplus = n, out-in
			}
		}
		delete(left, best)
		if sink {
			tail = append(tail, best)
		} else {
			head = append(head, best)
		}
	}
	slices.Reverse(tail)
	return append(head, tail...)
}

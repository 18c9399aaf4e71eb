package main

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// words had several meanings in this repository. Each should be declared at most once.
var words = strings.Fields("settle take link collect entry plain shown answer head seen patient tell said heads wire")

// ambiguousWords lists the words that are declared more than once as a function, a method or a type, with the number of
// declarations.
func (c *checkout) ambiguousWords() string {
	declarations := map[string]map[string]bool{} // by word
	add := func(name, declaration string) {
		if name = strings.ToLower(name); slices.Contains(words, name) {
			if declarations[name] == nil {
				declarations[name] = map[string]bool{}
			}
			declarations[name][declaration] = true
		}
	}
	c.functions(func(p *pkg, _ *file, d *ast.FuncDecl) { add(d.Name.Name, p.path+"."+receiver(d)) })
	c.types(func(p *pkg, spec *ast.TypeSpec) { add(spec.Name.Name, p.path+" type") })
	var list []string
	for word, all := range declarations {
		if len(all) > 1 {
			list = append(list, fmt.Sprintf("%s×%d", word, len(all)))
		}
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

// upward sorts the files of a package and of the packages below it, and returns how many of their references to each
// other lead from a later file to an earlier one. The order keeps these few, by the heuristic of Eades, Lin and Smyth
// (1993). References between two packages do not count.
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
	upward, position := 0, map[string]int{}
	for i, f := range order(graph) {
		position[f] = i
	}
	for from, targets := range graph {
		for to := range targets {
			if position[to] < position[from] {
				upward++
			}
		}
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", upward, total, 100*float64(upward)/float64(total))
}

// references maps each file of a package to the files that declare what it uses: package-level names, and methods whose
// name only one file declares.
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

// order sorts the nodes so that few edges run from a later node to an earlier one. It takes a sink and puts it last, or
// else a source and puts it first, or else the node with the largest surplus of outgoing edges and puts it first.
func order(graph map[string]map[string]bool) []string {
	remaining := maps.Clone(graph)
	degree := func(n string) (in, out int) {
		for m := range remaining {
			if graph[m][n] {
				in++
			}
			if graph[n][m] {
				out++
			}
		}
		return in, out
	}
	var first, last []string
	for len(remaining) > 0 {
		best, surplus, sink := "", -1<<30, false
		for _, n := range slices.Sorted(maps.Keys(remaining)) {
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
		delete(remaining, best)
		if sink {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
	}
	slices.Reverse(last)
	return append(first, last...)
}

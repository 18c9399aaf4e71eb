package expression

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

const (
	maxValueTime  = 2 * time.Second // of one evaluation; the cost limit applies first, unless the machine is busy
	maxValueDepth = 64
	maxValueSize  = 1 << 20 // bytes of a value's strings and names, and one for each of its values
)

// Expression is an expression with a value of any type. It is safe for concurrent use.
type Expression struct {
	source  string
	program cel.Program
	ast     *cel.Ast
}

// CompileValue returns the expression that source describes. It may use the variables, whose types are not declared.
func CompileValue(source string, variables ...string) (*Expression, error) {
	checked, program, err := compile(source, variables)
	if err != nil {
		return nil, err
	}
	return &Expression{source: source, program: program, ast: checked}, nil
}

// String returns the source.
func (e *Expression) String() string { return e.source }

// IsCondition reports whether the value may be true or false.
func (e *Expression) IsCondition() bool { return isCondition(e.ast) }

// Members returns the members of a variable that the expression selects. For each of them, it lists the members that
// the expression selects from that member. For the variable v in "v.a.b + v['c']", that is a with [b], and c with an
// empty list. complete is false if the expression also uses the variable in another way.
func (e *Expression) Members(variable string) (members map[string][]string, complete bool) {
	members = map[string][]string{}
	uses, selected := 0, 0
	ast.PreOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		path, ok := pathOf(x, variable)
		switch {
		case !ok:
		case len(path) == 0:
			uses++
		case len(path) == 1:
			selected++
			if members[path[0]] == nil {
				members[path[0]] = []string{}
			}
		case len(path) == 2:
			members[path[0]] = append(members[path[0]], path[1])
		}
	}))
	return members, uses == selected
}

// UsesWhole reports whether the expression uses a member of a variable in another way than to select a member of it
// by name. For the variable v and the member a, it does so in "v.a" and "v.a[v.b]", and not in "v.a.b".
func (e *Expression) UsesWhole(variable, member string) bool {
	uses, selected := 0, 0
	ast.PreOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		switch path, ok := pathOf(x, variable); {
		case !ok || len(path) == 0 || path[0] != member:
		case len(path) == 1:
			uses++
		case len(path) == 2:
			selected++
		}
	}))
	return uses > selected
}

// pathOf returns the names of the members that x selects one after another from a variable: [a b] for v.a.b, and no
// names for the variable itself. ok is false if x is anything else.
func pathOf(x ast.Expr, variable string) (names []string, ok bool) {
	switch x.Kind() {
	case ast.IdentKind:
		return nil, x.AsIdent() == variable
	case ast.SelectKind:
		path, ok := pathOf(x.AsSelect().Operand(), variable)
		return append(path, x.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := x.AsCall()
		if call.FunctionName() != operators.Index {
			return nil, false
		}
		path, ok := pathOf(call.Args()[0], variable)
		name, isLiteral := stringLiteral(call.Args()[1])
		return append(path, name), ok && isLiteral
	default:
		return nil, false
	}
}

// stringLiteral returns the value of x if x is a literal string.
func stringLiteral(x ast.Expr) (string, bool) {
	if x.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := x.AsLiteral().Value().(string)
	return s, ok
}

// Value evaluates the expression with the variables' values, as Decode returns them, and returns its value as JSON.
func (e *Expression) Value(ctx context.Context, values map[string]any) (json.RawMessage, error) {
	ctx, stop := context.WithTimeoutCause(ctx, maxValueTime, ErrTooSlow)
	defer stop()
	out, err := evaluate(ctx, e.program, values)
	if err != nil {
		return nil, err
	}
	room := maxValueSize
	v, err := native(out, 0, &room)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// native returns a value that package json can encode. room is what is left of maxValueSize: an expression may repeat a
// value without cost, and its JSON repeats it, too.
func native(v ref.Val, depth int, room *int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("the value is nested more than %d deep", maxValueDepth)
	}
	if *room -= 1 + length(v); *room < 0 {
		return nil, fmt.Errorf("the value is larger than %d bytes", maxValueSize)
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil //nolint:nilnil // null
	case types.Bool, types.Int, types.Uint, types.Double, types.String, types.Bytes:
		return v.Value(), nil
	case types.Timestamp:
		return v.Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.String(), nil
	case traits.Mapper:
		return nativeMap(v, depth, room)
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := native(it.Next(), depth+1, room)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %s has no JSON", v.Type().TypeName())
}

func nativeMap(v traits.Mapper, depth int, room *int) (any, error) {
	out := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.Value().(string)
		if !ok {
			return nil, errors.New("the keys of an object must be strings")
		}
		*room -= len(name)
		item, err := native(v.Get(key), depth+1, room)
		if err != nil {
			return nil, err
		}
		out[name] = item
	}
	return out, nil
}

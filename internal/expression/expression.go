// Package expression evaluates conditions and values in CEL, the Common Expression Language
// (github.com/google/cel-spec), within bounded time. CEL is the only expression language of settings, automations and
// workflows.
package expression

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/codefleet/codefleet/internal/patterns"
	"github.com/codefleet/codefleet/internal/text"
)

// Limits of an expression.
const (
	MaxSource  = 4096                   // bytes
	maxNesting = 24                     // of lists, objects and loops
	maxCost    = 100_000                // of one evaluation, in CEL's units: about one for each operation
	maxTime    = 100 * time.Millisecond // of one evaluation of a condition
)

// Condition is an expression that is true or false. It is safe for concurrent use.
type Condition struct {
	source  string
	program cel.Program
}

// Compile returns the condition that source describes. It may use the variables, whose types are not declared. The
// error about a wrong token or type says where it is in the source.
func Compile(source string, variables ...string) (*Condition, error) {
	checked, program, err := compile(source, variables)
	if err != nil {
		return nil, err
	}
	if !isCondition(checked) {
		return nil, fmt.Errorf("the expression %q has the type %s, want bool",
			text.Truncate(source, maxMessage), checked.OutputType())
	}
	return &Condition{source: source, program: program}, nil
}

func isCondition(checked *cel.Ast) bool {
	t := checked.OutputType()
	return t.IsEquivalentType(cel.BoolType) || t.IsEquivalentType(cel.DynType)
}

func compile(source string, variables []string) (*cel.Ast, cel.Program, error) {
	if len(source) > MaxSource {
		return nil, nil, fmt.Errorf("the expression is %d bytes; the limit is %d", len(source), MaxSource)
	}
	env, err := environment(variables)
	if err != nil {
		return nil, nil, err
	}
	parsed, issues := env.Parse(source)
	if issues.Err() != nil {
		return nil, nil, explain(issues)
	}
	// The time to check types grows with the third power of the depth.
	if nesting(ast.NavigateAST(parsed.NativeRep())) > maxNesting {
		return nil, nil, fmt.Errorf("lists, objects and loops are nested more than %d deep", maxNesting)
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, nil, explain(issues)
	}
	if err := checkPatterns(checked); err != nil {
		return nil, nil, err
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(1),
		cel.CustomDecoratorV2(bound), cel.CostTrackerOptions(cost.OverloadTracker(walk{}.OverloadID(), costOfWalk)))
	return checked, program, err
}

// checkPatterns returns an error if the argument of a call of matches is a text that is not a regular expression.
func checkPatterns(checked *cel.Ast) error {
	root := ast.NavigateAST(checked.NativeRep())
	for _, call := range ast.MatchDescendants(root, ast.FunctionMatcher(overloads.Matches)) {
		args := call.AsCall().Args()
		last := args[len(args)-1]
		if last.Kind() != ast.LiteralKind {
			continue
		}
		pattern, _ := last.AsLiteral().Value().(string)
		if err := patterns.Check(pattern); err != nil {
			return errors.New(text.Truncate("the regular expression of matches is invalid: "+err.Error(), maxMessage))
		}
	}
	return nil
}

// nesting returns how deep lists, objects and loops are nested in an expression.
func nesting(e ast.NavigableExpr) (depth int) {
	for _, child := range e.Children() {
		depth = max(depth, nesting(child))
	}
	switch e.Kind() {
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind:
		depth++
	default:
	}
	return depth
}

// environments has a *cel.Env for each list of variables, because to make one takes longer than to compile with it.
var environments sync.Map

func environment(variables []string) (*cel.Env, error) {
	key := strings.Join(variables, " ")
	if known, ok := environments.Load(key); ok {
		return known.(*cel.Env), nil //nolint:forcetypeassert,errcheck // the map has no other values
	}
	options := []cel.EnvOption{cel.CrossTypeNumericComparisons(true)}
	for _, v := range variables {
		options = append(options, cel.Variable(v, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err == nil {
		environments.Store(key, env)
	}
	return env, err
}

// String returns the source.
func (c *Condition) String() string { return c.source }

// Holds evaluates the condition with the variables' values, as Decode returns them. An error means that the expression
// cannot be evaluated with these values, for example because a field is missing, or costs too much.
func (c *Condition) Holds(ctx context.Context, values map[string]any) (bool, error) {
	ctx, stop := context.WithTimeoutCause(ctx, maxTime, ErrTooSlow)
	defer stop()
	out, err := evaluate(ctx, c.program, values)
	if err != nil {
		return false, err
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("the expression is neither true nor false")
	}
	return holds, nil
}

// evaluate evaluates a program until ctx ends.
func evaluate(ctx context.Context, program cel.Program, values map[string]any) (ref.Val, error) {
	out, _, err := program.ContextEval(ctx, values)
	if cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err); ok {
		return nil, cancelled // it cost too much
	}
	if err != nil && ctx.Err() != nil { // err may only be a consequence of the interruption
		return nil, fmt.Errorf("%w: %w: %w", errInterrupted, context.Cause(ctx), err)
	}
	return out, err
}

var errInterrupted = errors.New("the evaluation was interrupted")

// ErrTooSlow is in the errors of evaluations that exceeded their time limit.
var ErrTooSlow = errors.New("it took too long")

// Interrupted reports whether an error of Holds or Value says that the caller's context ended. The same evaluation may
// succeed later.
func Interrupted(err error) bool {
	return errors.Is(err, errInterrupted) && !errors.Is(err, ErrTooSlow)
}

// Decode returns the value of a variable: a JSON value whose whole numbers are int64, if they fit. Empty JSON is null.
func Decode(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // null
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return convertNumbers(v), nil
}

// convertNumbers replaces each json.Number in v with an int64 if it is one, or else with a float64.
func convertNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64() // ±Inf if it is too large
		return f
	case []any:
		for i := range v {
			v[i] = convertNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = convertNumbers(v[k])
		}
	}
	return v
}

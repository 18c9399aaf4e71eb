package expression

import (
	"math/bits"
	"regexp/syntax"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

const (
	// maxNodes is how many values a list or an object that an expression makes may contain, at any depth. The inputs of
	// a workflow have fewer.
	maxNodes = 300_000

	perUnit   = 10  // steps of a walk that cost one unit
	checkStep = 512 // steps after which a walk looks whether it is interrupted
	perStep   = 64  // bytes of a string that are compared in one step
)

// bound bounds what CEL does not: the time of operations that visit all of a value. CEL charges as little for them as
// for any operation, or charges only afterwards, and interrupts only loops.
func bound(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch i := i.(type) {
	case interpreter.InterpretableConstructor:
		if len(i.InitVals()) > 0 {
			return bounded{i}, nil
		}
	case interpreter.InterpretableCall:
		if do := walks[i.Function()]; do != nil && len(i.Args()) == 2 {
			return walking{i, do}, nil
		}
		return interruptible{i}, nil
	}
	return i, nil
}

// interrupted is the value of what was interrupted.
func interrupted() ref.Val { return types.WrapErr(interpreter.InterruptError{}) }

// interruptible is a call that does not begin after an interruption.
type interruptible struct {
	interpreter.InterpretableCall
}

// Exec implements interpreter.InterpretableV2.
func (c interruptible) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if frame.CheckInterrupt() {
		return interrupted()
	}
	return c.InterpretableCall.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (c interruptible) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, c.Exec)
}

// walking is a call with two arguments that is charged before it walks them.
type walking struct {
	interpreter.InterpretableCall

	do func(w *walk, a, b ref.Val) ref.Val
}

// walks has the calls that walk their arguments.
var walks = map[string]func(w *walk, a, b ref.Val) ref.Val{
	operators.Equals:    (*walk).equal,
	operators.NotEquals: (*walk).notEqual,
	operators.In:        (*walk).in,
	operators.OldIn:     (*walk).in,
	overloads.Matches:   (*walk).matches,
}

// Exec implements interpreter.InterpretableV2.
func (c walking) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if frame.CheckInterrupt() {
		return interrupted()
	}
	var args [2]ref.Val
	for i, arg := range c.Args() {
		if args[i] = arg.Exec(frame); types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	out := c.do(&walk{frame: frame}, args[0], args[1])
	frame.CostTracker().EvalBinary(frame, c.ID(), c, args[0], args[1], out)
	return out
}

// Eval implements interpreter.Interpretable.
func (c walking) Eval(a interpreter.Activation) ref.Val { return interpreter.EvalActivation(a, c.Exec) }

// bounded constructs a list or an object, and refuses one that is too large.
type bounded struct {
	interpreter.InterpretableConstructor
}

// Exec implements interpreter.InterpretableV2.
func (b bounded) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := b.InterpretableConstructor.Exec(frame)
	if types.IsUnknownOrError(v) {
		return v
	}
	w := &walk{frame: frame}
	whole := w.visit(v, maxNodes)
	w.charge()
	switch {
	case w.interrupted:
		return interrupted()
	case !whole:
		return types.NewErr("a list or an object has more than %d values", maxNodes)
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (b bounded) Eval(a interpreter.Activation) ref.Val { return interpreter.EvalActivation(a, b.Exec) }

// walk counts the steps of a walk through values.
type walk struct {
	frame       *interpreter.ExecutionFrame
	steps       int
	strings     bool // long strings count as several steps
	interrupted bool
}

// Function implements cost.Call.
func (walk) Function() string { return "codefleet_walk" }

// OverloadID implements cost.Call.
func (w walk) OverloadID() string { return w.Function() }

// costOfWalk returns the units of the steps in result.
func costOfWalk(_ []ref.Val, result ref.Val) *uint64 {
	steps, _ := result.(types.Int)
	units := uint64(max(steps, 0)+perUnit-1) / perUnit
	return &units
}

// charge adds the steps to the cost of the evaluation, and cancels the evaluation if they exceed its limit.
func (w *walk) charge() {
	w.frame.CostTracker().EvalZeroArity(nil, 0, w, types.Int(w.steps))
}

// visit visits v and what it contains. It reports whether these are at most room steps, and it was not interrupted.
func (w *walk) visit(v ref.Val, room int) bool {
	left := room
	whole := w.descend(v, &left)
	w.steps += room - max(left, 0)
	return whole
}

func (w *walk) descend(v ref.Val, room *int) bool {
	before := *room
	*room--
	if w.strings {
		*room -= length(v) / perStep
	}
	if *room < 0 {
		return false
	}
	if before/checkStep != *room/checkStep && w.frame.CheckInterrupt() {
		w.interrupted = true
		return false
	}
	switch v := v.(type) {
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !w.descend(v.Get(it.Next()), room) {
				return false
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !w.descend(it.Next(), room) {
				return false
			}
		}
	}
	return true
}

// pay charges a walk through the values, before an operation walks them. It reports whether it was not interrupted.
func (w *walk) pay(values ...ref.Val) bool {
	w.strings = true
	for _, v := range values {
		w.visit(v, maxCost*perUnit) // more cancels the evaluation
	}
	w.charge()
	return !w.interrupted
}

func (w *walk) equal(a, b ref.Val) ref.Val {
	if isContainer(a) && isContainer(b) && size(a) == size(b) && !w.pay(a, b) {
		return interrupted()
	}
	return types.Equal(a, b)
}

func (w *walk) notEqual(a, b ref.Val) ref.Val {
	equal := w.equal(a, b)
	if types.IsUnknownOrError(equal) && w.interrupted {
		return equal
	}
	return types.Bool(equal != types.True)
}

func (w *walk) in(a, b ref.Val) ref.Val {
	container, ok := b.(traits.Container)
	if !ok {
		return types.NewErr("no such overload: in")
	}
	if _, isList := b.(traits.Lister); isList && !w.pay(b) {
		return interrupted()
	}
	return container.Contains(a)
}

// matches charges the product of the sizes of the text and of the program of the pattern.
func (w *walk) matches(text, pattern ref.Val) ref.Val {
	matcher, ok := text.(traits.Matcher)
	source, isString := pattern.(types.String)
	if !ok || !isString {
		return types.NewErr("no such overload: matches")
	}
	re, err := syntax.Parse(string(source), syntax.Perl)
	if err != nil {
		return types.WrapErr(err)
	}
	w.steps = programSize(re) * (2 + length(text)/8)
	w.charge()
	return matcher.Match(pattern)
}

// programSize returns about how many instructions the program of a pattern has. Unlike in package patterns, which only
// looks whether it is too large, it has no limit of its own: the parser bounds it.
func programSize(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass { // one instruction, which searches the ranges
		n = 1 + bits.Len(uint(len(re.Rune)))
	}
	for _, sub := range re.Sub {
		n += programSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

func isContainer(v ref.Val) bool {
	switch v.(type) {
	case traits.Mapper, traits.Lister:
		return true
	}
	return false
}

func size(v ref.Val) ref.Val {
	if s, ok := v.(traits.Sizer); ok {
		return s.Size()
	}
	return types.IntZero
}

// length returns the size of a string or of bytes, and 0 for other values.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

package expression

import "context"

// HoldsEventually is like Holds, without a time limit.
func (c *Condition) HoldsEventually(ctx context.Context, values map[string]any) (bool, error) {
	out, err := evaluate(ctx, c.program, values)
	return err == nil && out.Value() == true, err
}

// Package value holds the values of templates and what can be done with them, as Python does it:
// numbers, strings, lists and mappings, their order, their arithmetic and how they are written.
// It knows no syntax. All that makes or goes through something is counted by a Meter.
package value

import (
	"context"
	"errors"
	"fmt"
)

// Limits of what one Meter counts.
const (
	// MaxDepth is how deep values may nest where one is written or compared.
	MaxDepth = 100
	// MaxSteps is how many elements and operations there may be: some ten milliseconds of them. The
	// templates of a pod need some hundred.
	MaxSteps = 50_000
	// MaxBytes is how much text may be made; an object of the API has 1.5 MiB at most.
	MaxBytes = 1 << 20
)

// What a Meter says when there was too much, and when its context has ended.
var (
	ErrSteps = fmt.Errorf("the template needs more than %d steps", MaxSteps)
	ErrBytes = fmt.Errorf("the template makes more than %d bytes of text", MaxBytes)
	ErrEnded = errors.New("rendering was ended")
)

// errDeep is what is said of values that nest too deep.
var errDeep = fmt.Errorf("the value nests deeper than %d", MaxDepth)

// Meter bounds what one rendering does. It is not for several goroutines. What is counted is paid
// before it is done, or where that is not known before, at once after it, so that what goes beyond a
// limit does so once.
type Meter struct {
	ctx          context.Context
	steps, bytes int
}

// NewMeter is a Meter that ends with ctx.
func NewMeter(ctx context.Context) *Meter { return &Meter{ctx: ctx} }

// often is after how many steps it is looked whether the context has ended.
const often = 256

// Step counts one operation.
func (m *Meter) Step() error { return m.Pay(1) }

// Pay counts n operations.
func (m *Meter) Pay(n int) error {
	before := m.steps
	if m.steps = counted(m.steps, n, MaxSteps); m.steps > MaxSteps {
		return ErrSteps
	}
	if before/often != m.steps/often && m.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrEnded, context.Cause(m.ctx))
	}
	return nil
}

// Grow counts n bytes of text.
func (m *Meter) Grow(n int) error {
	if m.bytes = counted(m.bytes, n, MaxBytes); m.bytes > MaxBytes {
		return ErrBytes
	}
	return nil
}

// counted is a sum that does not go far beyond a limit: what is beyond it stays beyond it, however
// large n is, and nothing is given back by an n below 0.
func counted(sum, n, limit int) int { return min(sum+min(max(n, 0), limit+1), limit+1) }

// stride is how many bytes of text that is looked through count as one operation.
const stride = 64

// Scan counts that a text is looked through.
func (m *Meter) Scan(s string) error { return m.Pay(len(s) / stride) }

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

// Meter bounds what one rendering does. It is not for several goroutines.
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
	if m.steps += n; m.steps > MaxSteps || n > MaxSteps {
		return ErrSteps
	}
	if before/often != m.steps/often && m.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrEnded, context.Cause(m.ctx))
	}
	return nil
}

// Grow counts n bytes of text, before they are made where that is known.
func (m *Meter) Grow(n int) error {
	if m.bytes += n; m.bytes > MaxBytes || n > MaxBytes {
		return ErrBytes
	}
	return nil
}

// stride is how many bytes of text that is looked through count as one operation.
const stride = 256

// Scan counts that a text is looked through.
func (m *Meter) Scan(s string) error { return m.Pay(len(s) / stride) }

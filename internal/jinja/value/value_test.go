package value

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWholeNumbers: arithmetic is that of numbers without a limit, or says that there is one.
func TestWholeNumbers(t *testing.T) {
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 32, -7, -2, -1, 0, 1, 2, 3, 7, 1 << 31, 1<<32 + 1, math.MaxInt64 - 1, math.MaxInt64}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		edges = append(edges, int64(r.Uint64())>>r.IntN(64))
	}
	m := NewMeter(t.Context())
	for _, a := range edges {
		for _, b := range edges {
			m.steps = 0
			for operator, exact := range map[string]func(z, x, y *big.Int) *big.Int{"+": (*big.Int).Add, "-": (*big.Int).Sub, "*": (*big.Int).Mul, "//": floor, "%": modulo} {
				want := exact(new(big.Int), big.NewInt(a), big.NewInt(b))
				got, err := m.Operate(operator, a, b)
				switch {
				case want == nil || !want.IsInt64():
					if err == nil {
						t.Errorf("%d %s %d = %v, want an error", a, operator, b, got)
					}
				case err != nil || got != want.Int64():
					t.Errorf("%d %s %d = %v, %v, want %v", a, operator, b, got, err, want)
				}
			}
		}
	}
}

// floor divides as Python does: down, and not towards zero.
func floor(z, x, y *big.Int) *big.Int {
	if y.Sign() == 0 {
		return nil
	}
	m := new(big.Int)
	z.DivMod(x, y, m)
	if y.Sign() < 0 && m.Sign() != 0 {
		z.Sub(z, big.NewInt(1))
	}
	return z
}

func modulo(z, x, y *big.Int) *big.Int {
	if y.Sign() == 0 {
		return nil
	}
	z.Mod(x, y)
	if y.Sign() < 0 && z.Sign() != 0 {
		z.Add(z, y)
	}
	return z
}

func TestPowers(t *testing.T) {
	m := NewMeter(t.Context())
	for _, c := range []struct{ base, exponent, want any }{
		{int64(2), int64(62), int64(1) << 62},
		{int64(-2), int64(63), int64(math.MinInt64)},
		{int64(2), int64(63), nil},
		{int64(0), int64(0), int64(1)},
		{int64(1), int64(math.MaxInt64), int64(1)},
		{int64(-1), int64(math.MaxInt64), int64(-1)},
		{int64(-1), int64(math.MaxInt64 - 1), int64(1)},
		{int64(0), int64(math.MaxInt64), int64(0)},
		{int64(2), int64(-1), 0.5},
		{int64(0), int64(-1), nil},
		{true, int64(3), int64(1)},
	} {
		got, err := m.Operate("**", c.base, c.exponent)
		if (err != nil) != (c.want == nil) || err == nil && got != c.want {
			t.Errorf("%v ** %v = %v, %v, want %v", c.base, c.exponent, got, err, c.want)
		}
	}
}

// TestTaken: what is given is taken in by its kind, and what a template cannot use is not there.
func TestTaken(t *testing.T) {
	m := NewMeter(t.Context())
	for _, c := range []struct {
		given any
		want  string
	}{
		{nil, "none"},
		{true, "a boolean"},
		{3, "a number"},
		{int32(3), "a number"},
		{"", "a string"},
		{[]any{}, "a list"},
		{[]string{}, "a list"},
		{map[string]any{}, "a mapping"},
		{map[string]string{}, "a mapping"},
		{struct{}{}, "nothing: a value of type struct {} cannot be used in a template"},
	} {
		if got, err := m.Take(c.given); err != nil || TypeName(got) != c.want {
			t.Errorf("%T is %s, %v, want %s", c.given, TypeName(got), err, c.want)
		}
	}
	if _, ok, err := m.Give(&List{Items: []any{Undefined{}}}); ok || err != nil {
		t.Error("a list with what is not defined in it was given on")
	}
}

// TestNothingIsGivenBack: what is counted stays counted, whatever is counted after it.
func TestNothingIsGivenBack(t *testing.T) {
	for _, n := range []int{-1, math.MinInt, math.MaxInt, math.MaxInt - MaxSteps} {
		m := NewMeter(t.Context())
		if err := m.Pay(MaxSteps); err != nil {
			t.Fatal(err)
		}
		if err := m.Grow(MaxBytes); err != nil {
			t.Fatal(err)
		}
		_, _ = m.Pay(n), m.Grow(n)
		if err := m.Step(); !errors.Is(err, ErrSteps) {
			t.Errorf("a step after %d: %v", n, err)
		}
		if err := m.Grow(1); !errors.Is(err, ErrBytes) {
			t.Errorf("a byte after %d: %v", n, err)
		}
	}
}

// TestSlices: a slice has the places that Python's has, of lists and of texts.
func TestSlices(t *testing.T) {
	m := NewMeter(t.Context())
	const letters = "aéb😀"
	for n := range utf8.RuneCountInString(letters) + 1 {
		of := &List{}
		for _, c := range []rune(letters)[:n] {
			of.Items = append(of.Items, string(c))
		}
		text := string([]rune(letters)[:n])
		bounds := []*int64{nil}
		for _, i := range []int64{math.MinInt64, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, math.MaxInt64} {
			bounds = append(bounds, &i)
		}
		for _, begin := range bounds {
			for _, end := range bounds {
				for _, step := range bounds {
					if step != nil && *step == 0 {
						continue
					}
					m.steps, m.bytes = 0, 0
					b := [3]*int64{begin, end, step}
					want := python(of.Items, b)
					list, err := m.Slice(of, b)
					if err != nil || fmt.Sprint(list.(*List).Items) != fmt.Sprint(want) {
						t.Fatalf("%v of %d elements: %v, %v, want %v", b, n, list, err, want)
					}
					if got, err := m.Slice(text, b); err != nil || got != strings.ReplaceAll(strings.Trim(fmt.Sprint(want), "[]"), " ", "") {
						t.Fatalf("%v of %q: %q, %v, want %v", b, text, got, err, want)
					}
				}
			}
		}
	}
}

// python is a slice as Python's documentation defines it.
func python(of []any, bounds [3]*int64) (out []any) {
	n, step := int64(len(of)), int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	limit := [2]int64{low, high}
	if step < 0 {
		limit = [2]int64{high, low}
	}
	for i := range limit {
		if b := bounds[i]; b != nil && *b < 0 {
			limit[i] = max(*b+n, low)
		} else if b != nil {
			limit[i] = min(*b, high)
		}
	}
	for i := range n {
		at := i
		if step < 0 {
			at = n - 1 - i
		}
		inside := at >= limit[0] && at < limit[1]
		if step < 0 {
			inside = at <= limit[0] && at > limit[1]
		}
		if inside && (at-limit[0])%step == 0 {
			out = append(out, of[at])
		}
	}
	return out
}

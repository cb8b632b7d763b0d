package value

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
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
		{&List{Tuple: true}, "a tuple"},
		{&Namespace{}, "a namespace"},
		{struct{}{}, "nothing: a value of type struct {} cannot be used in a template"},
	} {
		if got := TypeName(Take(c.given)); got != c.want {
			t.Errorf("%T is %s, want %s", c.given, got, c.want)
		}
	}
	if _, ok := Give(&List{Items: []any{Undefined{}}}); ok {
		t.Error("a list with what is not defined in it was given on")
	}
}

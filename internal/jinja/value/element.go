package value

import (
	"errors"
	"fmt"
)

// Element is an element, by its key or by its place, which counts from the end if it is negative;
// false if there is none.
func (m *Meter) Element(of, index any) (any, bool, error) {
	switch of := of.(type) {
	case *Dict:
		v, ok := of.Get(index)
		return v, ok, m.key(index)
	case *List:
		i, ok := place(index, len(of.Items))
		if !ok {
			return nil, false, nil
		}
		return Take(of.Items[i]), true, nil
	case string:
		if err := m.Scan(of); err != nil {
			return nil, false, err
		}
		all := []rune(of)
		i, ok := place(index, len(all))
		if !ok {
			return nil, false, nil
		}
		return string(all[i]), true, nil
	}
	return nil, false, nil
}

// place is that of an element among n; false if there is none.
func place(index any, n int) (int64, bool) {
	i, ok := Integer(index)
	if i < 0 {
		i += int64(n)
	}
	return i, ok && i >= 0 && i < int64(n)
}

// Slice are the elements of a list or the characters of a string between bounds, which are the first,
// the one after the last, and the step.
func (m *Meter) Slice(of any, bounds [3]*int64) (any, error) {
	switch of := of.(type) {
	case string:
		all := []rune(of)
		places, err := places(len(all), bounds)
		if err != nil {
			return nil, err
		}
		out := make([]rune, len(places))
		for i, p := range places {
			out[i] = all[p]
		}
		return string(out), m.Grow(len(out))
	case *List:
		places, err := places(len(of.Items), bounds)
		if err != nil {
			return nil, err
		}
		out := &List{Tuple: of.Tuple}
		for _, p := range places {
			out.Items = append(out.Items, of.Items[p])
		}
		return out, m.Pay(len(places))
	case Undefined:
		return nil, errors.New(of.What)
	}
	return nil, fmt.Errorf("%s cannot be sliced", TypeName(of))
}

// places are the elements of a slice, as in Python.
func places(n int, bounds [3]*int64) ([]int, error) {
	step := int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, errors.New("the step of a slice cannot be 0")
	}
	low, high := int64(0), int64(n)
	if step < 0 {
		low, high = -1, int64(n)-1
	}
	at := func(b *int64, otherwise int64) int64 {
		if b == nil {
			return otherwise
		}
		i := *b
		if i < 0 {
			i += int64(n)
		}
		return min(max(i, low), high)
	}
	begin, end := low, high
	if step < 0 {
		begin, end = high, low
	}
	begin, end = at(bounds[0], begin), at(bounds[1], end)
	var out []int
	for i := begin; step > 0 && i < end || step < 0 && i > end; i += step {
		out = append(out, int(i))
		if step > int64(n) || step < -int64(n) {
			break
		}
	}
	return out, nil
}

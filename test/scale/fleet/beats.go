package fleet

import "math"

// Beats are those of a while.
type Beats struct {
	Answered, Due float64
	senders       float64
}

// leastBeats is how many of the beats that are due have to be answered: with fewer
// the machine does not carry the load, and what is measured is of another.
const leastBeats = 0.95

// Carried reports whether the machine carried the beats. When the while begins and
// ends is by chance: of that, one sender has up to half a beat more or less, and all
// together three times half of the root of their number.
func (b Beats) Carried() bool {
	return b.Answered >= leastBeats*b.Due-1.5*math.Sqrt(b.senders)
}

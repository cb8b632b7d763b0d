package provisioner

// Place is a place in the words of CSI's topology: the value of each key. What
// is said of a place holds wherever all of its values do.
type Place = map[string]string

// Reach says whether something that is reached from some places is reached from
// another.
type Reach uint8

// The answers.
const (
	// Reached: it is.
	Reached Reach = iota
	// Unclear: the place does not tell all that counts.
	Unclear
	// Elsewhere: it is not.
	Elsewhere
)

// ReachFrom says whether what is reached from the places given, or from
// everywhere if there are none, is reached from where at tells.
func ReachFrom(at Place, places []Place) Reach {
	if len(places) == 0 {
		return Reached
	}
	out := Elsewhere
	for _, p := range places {
		out = min(out, within(at, p))
	}
	return out
}

// within says whether at lies in a place.
func within(at, place Place) Reach {
	out := Reached
	for k, v := range place {
		switch have, told := at[k]; {
		case !told:
			out = max(out, Unclear)
		case have != v:
			return Elsewhere
		}
	}
	return out
}

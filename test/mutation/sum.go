package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// leastCaught is how many in a hundred of the mutants that compile have to be caught.
const leastCaught = 95

// sum is how it went with mutants that were generated.
type sum struct {
	mutants, caught, stillborn, known int
	// escaped are those that nothing catches and no reason is known for, caughtKnown those
	// for which there is one, and which something catches.
	escaped, caughtKnown []string
	untried              []error
}

// reason is why nothing can catch the mutant; "" if something should.
func reason(m mutation, table map[string]map[string]string) string {
	return table[strings.TrimPrefix(m.tests, "./")][m.name]
}

func sumUp(results []outcome, table map[string]map[string]string) sum {
	s := sum{mutants: len(results)}
	for _, o := range results {
		known := reason(o.mutation, table) != ""
		switch {
		case errors.Is(o.err, errStillborn):
			s.stillborn++
		case o.err != nil:
			s.untried = append(s.untried, o.err)
		case o.by != "":
			s.caught++
			if known {
				s.caughtKnown = append(s.caughtKnown, o.name)
			}
		case known:
			s.known++
		default:
			s.escaped = append(s.escaped, o.name)
		}
	}
	return s
}

// rate is how many in a hundred of the mutants that compile were caught.
func (s sum) rate() float64 {
	return 100 * float64(s.caught) / float64(max(1, s.caught+s.known+len(s.escaped)))
}

func (s sum) String() string {
	return fmt.Sprintf("%d mutants: %d caught, %d stillborn, %d known survivors, %d others that nothing caught; the kill rate is %.1f %%",
		s.mutants, s.caught, s.stillborn, s.known, len(s.escaped), s.rate())
}

// err says what is wrong. The rate counts if all mutants were tried.
func (s sum) err(whole bool) error {
	errs := slices.Clone(s.untried)
	for _, name := range s.escaped {
		errs = append(errs, fmt.Errorf("nothing catches %q: write a test, or its reason into test/mutation/survivors.go if it does what the code does", name))
	}
	for _, name := range s.caughtKnown {
		errs = append(errs, fmt.Errorf("%q is caught: it does not belong into test/mutation/survivors.go", name))
	}
	if whole && s.rate() < leastCaught {
		errs = append(errs, fmt.Errorf("the kill rate is %.1f %%, less than %d %%", s.rate(), leastCaught))
	}
	return errors.Join(errs...)
}

// listed says which survivors of the packages are no mutants any more.
func listed(packages []string, made []mutation, table map[string]map[string]string) error {
	var errs []error
	for _, pkg := range packages {
		for name := range table[pkg] {
			if !slices.ContainsFunc(made, func(m mutation) bool { return m.name == name && m.tests == "./"+pkg }) {
				errs = append(errs, fmt.Errorf("%s has no mutant %q any more: take it out of test/mutation/survivors.go", pkg, name))
			}
		}
	}
	return errors.Join(errs...)
}

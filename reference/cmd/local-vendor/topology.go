package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// places is a flag that names one place each time that it is given.
type places []provisioner.Place

var _ pflag.Value = (*places)(nil)

// Set adds a place, key=value,...
func (p *places) Set(text string) error {
	place := provisioner.Place{}
	for _, label := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(label, "=")
		if _, twice := place[key]; !ok || key == "" || twice {
			return fmt.Errorf("place %q: want key=value, or several with commas between them, each key once", text)
		}
		place[key] = value
	}
	*p = append(*p, place)
	return nil
}

// String is what Set takes, of all places.
func (p *places) String() string {
	var out []string
	for _, place := range *p {
		out = append(out, fmt.Sprint(place))
	}
	return strings.Join(out, " ")
}

// Type names the kind of value in the usage.
func (*places) Type() string { return "labels" }

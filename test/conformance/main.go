// Command conformance helps to run Kubernetes' storage suite on the test bed.
// "conformance load AGNHOST" brings the images that the suite asks for to the
// hosts, under its names; "conformance place HOST PLACE" moves a host to another
// place of the vendor's storage; "conformance skips DEFINITION" prints a regular
// expression for the specs that cannot run there; "conformance report DEFINITION
// FILE" tells what came of them. A definition is a file here, without its .yaml.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	mask, err := capabilities()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "load":
		return load(ctx, args[1])
	case len(args) == 3 && args[0] == "place":
		return place(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "skips":
		_, err := fmt.Println(expression(left(args[1], mask)))
		return err
	case len(args) == 3 && args[0] == "report":
		return report(os.Stdout, args[2], left(args[1], mask))
	}
	return fmt.Errorf("usage: conformance load AGNHOST, conformance place HOST PLACE, conformance skips DEFINITION, or conformance report DEFINITION FILE")
}

package results

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// Output is where the results of a benchmark go, and what they are judged by.
type Output struct {
	// Dir has the files of results, KnownMisses is the file of targets that are known
	// to be missed, and Name the name of the machine in the name of the file.
	Dir, KnownMisses, Name string
}

// Bind adds the flags to f.
func (o *Output) Bind(f *flag.FlagSet) {
	f.StringVar(&o.Dir, "out", "", "directory of the results; empty is bench/results of the checkout")
	f.StringVar(&o.Name, "name", DefaultName(), "name of the machine in the name of the file")
	f.StringVar(&o.KnownMisses, "known-misses", "", "file of targets that are known to be missed, with reasons; empty is bench/known-misses.json of the checkout")
}

// In is the output with what the flags left empty, which is in the checkout.
func (o Output) In(checkout string) Output {
	o.Dir = cmp.Or(o.Dir, filepath.Join(checkout, "bench", "results"))
	o.KnownMisses = cmp.Or(o.KnownMisses, filepath.Join(checkout, "bench", "known-misses.json"))
	return o
}

// Publish judges what was measured (Judge), and adds it to its file, good or not.
func (o Output) Publish(out io.Writer, measured File, known KnownMisses) error {
	err := Judge(out, measured, known)
	path, saveErr := Save(o.Dir, o.Name, time.Now(), measured)
	if saveErr == nil {
		fmt.Fprintln(out, "\nwritten to", path)
	}
	return errors.Join(err, saveErr)
}

// Judge prints the table of what was measured. The error says why the results are
// not good, or that there are none.
func Judge(out io.Writer, measured File, known KnownMisses) error {
	all := measured.Summaries()
	if len(all) == 0 {
		return errors.New("nothing was measured")
	}
	for _, in := range measured.Invocations {
		fmt.Fprintf(out, "\n%s\n\n", describe(in))
	}
	if err := Print(out, all, known); err != nil {
		return err
	}
	for _, name := range known.Met(all) {
		fmt.Fprintf(out, "\n%s is a known miss, and was met: take it out of the list if that stays so\n", name)
	}
	return known.Problems(all)
}

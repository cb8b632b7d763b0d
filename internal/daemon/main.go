package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/moor-storage/moor/internal/daemon/version"
)

// The exit codes of a daemon that does not end well.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main is the main function of a daemon: bind adds its flags to those that all
// have (-v, --version), and run works until its context ends, which a SIGTERM
// or SIGINT brings about; a second one ends the process at once. Main does not
// return. bind and run are methods of one pointer, since run reads what the
// flags were set to.
func Main(name string, bind func(*pflag.FlagSet), run func(context.Context) error) {
	p := program{name: name, bind: bind, run: run, out: os.Stdout, errors: os.Stderr}
	os.Exit(p.start(signals.SetupSignalHandler(), os.Args[1:]))
}

// program is one run of Main.
type program struct {
	name        string
	bind        func(*pflag.FlagSet)
	run         func(context.Context) error
	out, errors io.Writer
}

// start runs the program and returns its exit code.
func (p program) start(ctx context.Context, args []string) int {
	var logs LogFlags
	fs := pflag.NewFlagSet(p.name, pflag.ContinueOnError)
	fs.SetOutput(p.errors)
	p.bind(fs)
	logs.Bind(fs)
	bindForeign(fs)
	profiles := fs.String("pprof-bind-address", "", "address of /debug/pprof, Go's profiles, e.g. 127.0.0.1:6060; empty: off")
	show := fs.Bool("version", false, "print version, commit and Go version, and end")
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(p.errors, "%s: %v; --help lists the flags\n", p.name, err)
		return exitUsage
	}
	if *show {
		fmt.Fprintf(p.out, "%s version %s\n", p.name, version.Built())
		return 0
	}
	logger, err := logs.Logger()
	if err != nil {
		fmt.Fprintf(p.errors, "%s: %v; --help lists the flags\n", p.name, err)
		return exitUsage
	}
	log.SetLogger(logger)
	version.LogStart(log.Log, p.name)
	logNoEffect(fs, log.Log)
	if err := p.work(ctx, *profiles); err != nil {
		fmt.Fprintf(p.errors, "%s: %v\n", p.name, err)
		return exitFailed
	}
	return 0
}

// work runs the program, with its profiles beside it.
func (p program) work(ctx context.Context, profiles string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := profile(ctx, profiles); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		go spareMemory(ctx)
	}
	return p.run(ctx)
}

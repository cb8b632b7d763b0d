package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

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

// garbagePercent is how much garbage there may be before it is collected, in percent of
// what lives, once a process has run for startUp; Go's own is 100. Most of what these
// processes hold are caches, which live long, and at rest they make little garbage: memory
// is dearer than the collections. With 2,000 attachments, snap-host-controller has 118 MB
// at 100, 101 MB at 50 and 92 MB at 25, and uses 3.6, 4.1 and 4.3 % of a core at rest, all
// beside other work. While a process fills its caches and looks at each object it makes
// much garbage: with 10,000 attachments and 25 %, a third of the processor time of its
// start was for collecting it. The environment variable GOGC overrides it.
const (
	garbagePercent = 25
	startUp        = 2 * time.Minute
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

// work runs the program, with its profiles beside it, and spares memory once it has started.
func (p program) work(ctx context.Context, profiles string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := profile(ctx, profiles); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		defer time.AfterFunc(startUp, spareMemory).Stop()
	}
	return p.run(ctx)
}

// spareMemory collects garbage earlier from now on, and gives back what the start took.
func spareMemory() {
	debug.SetGCPercent(garbagePercent)
	debug.FreeOSMemory()
}

package daemon

import (
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// LogFlags are the flags of logging that every process has.
type LogFlags struct {
	verbosity int
}

// Bind adds the flags to fs.
func (f *LogFlags) Bind(fs *pflag.FlagSet) {
	fs.IntVarP(&f.verbosity, "v", "v", 0, "how much to log: 0 changes of state, 1 steps, 2 details, 4 everything")
}

// Logger makes the logger and hands it to the libraries that log by klog.
func (f *LogFlags) Logger() logr.Logger {
	config := textlogger.NewConfig(textlogger.Verbosity(f.verbosity))
	logger := textlogger.NewLogger(config)
	klog.SetLogger(logger)
	var level klog.Level
	_ = level.Set(strconv.Itoa(f.verbosity))
	return logger
}

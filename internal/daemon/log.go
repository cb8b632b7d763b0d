package daemon

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
)

// LogFlags are the flags of logging that every process has: those of Kubernetes' own.
type LogFlags struct {
	config *logsapi.LoggingConfiguration
}

// Bind adds the flags to fs. Of those of Kubernetes the experimental ones are left out.
func (f *LogFlags) Bind(fs *pflag.FlagSet) {
	f.config = logsapi.NewLoggingConfiguration()
	all := pflag.NewFlagSet("logs", pflag.ContinueOnError)
	logsapi.AddFlags(f.config, all)
	for name, usage := range map[string]string{
		"v":              "how much to log: 0 changes of state, 1 steps, 2 details, 4 everything",
		"vmodule":        "the same by file, as pattern=number,...; for text alone",
		"logging-format": "text or json",
	} {
		flag := all.Lookup(name)
		flag.Usage = usage
		fs.AddFlag(flag)
	}
}

// Logger makes the logger and hands it to the libraries that log by klog. A process has
// one: another configuration is refused.
func (f *LogFlags) Logger() (logr.Logger, error) {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	if err := logsapi.ValidateAndApply(f.config, nil); err != nil {
		return logr.Logger{}, fmt.Errorf("read the flags of logging: %w", err)
	}
	return klog.Background(), nil
}

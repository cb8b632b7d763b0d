package daemon

import (
	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// noEffect is the annotation of a flag that is accepted and means nothing; it says why.
const noEffect = "no-effect"

// NoEffect adds flags that the manifests of others give, and that mean nothing here: DPF's
// charts start these programs unchanged. Each takes any value, or none, is not listed by
// --help, and is named once in the log, with why, if it is given. A flag that the program
// has stays what it is.
func NoEffect(fs *pflag.FlagSet, why string, names ...string) {
	for _, name := range names {
		if fs.Lookup(name) != nil {
			continue
		}
		f := fs.VarPF(new(ignored), name, "", why)
		f.NoOptDefVal = "true" // --flag alone is one
		f.Hidden = true
		f.Annotations = map[string][]string{noEffect: {why}}
	}
}

// logNoEffect tells of those that were given.
func logNoEffect(fs *pflag.FlagSet, log logr.Logger) {
	fs.Visit(func(f *pflag.Flag) {
		if why := f.Annotations[noEffect]; len(why) > 0 {
			log.Info("this flag has no effect", "flag", "--"+f.Name, "value", f.Value.String(), "why", why[0])
		}
	})
}

// bindForeign adds what Kubernetes' component-base has of logging beside LogFlags.
func bindForeign(fs *pflag.FlagSet) {
	NoEffect(fs, "the log is one stream, on stderr, without a buffer",
		"log-flush-frequency", "log-text-split-stream", "log-text-info-buffer-size", "log-json-split-stream", "log-json-info-buffer-size")
}

// ignored is the value of a flag without effect.
type ignored string

func (v *ignored) Set(text string) error {
	*v = ignored(text)
	return nil
}

func (v *ignored) String() string { return string(*v) }

func (v *ignored) Type() string { return "string" }

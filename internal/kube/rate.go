package kube

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Rate bounds how much a process asks of an API server. By default it does not:
// API servers have priority and fairness, while here the story of a failover would
// wait in one queue with the failover.
type Rate struct {
	QPS   float32
	Burst int
}

// Bind adds the flags to fs.
func (r *Rate) Bind(fs *pflag.FlagSet) {
	fs.Float32Var(&r.QPS, "kube-api-qps", -1, "API requests per second, on average; negative: as many as the API server takes")
	fs.IntVar(&r.Burst, "kube-api-burst", 200, "API requests at once, at most, if --kube-api-qps bounds them")
}

// Validate says which flag is wrong.
func (r *Rate) Validate() error {
	switch {
	case r.QPS == 0:
		return errors.New("--kube-api-qps is 0: give a rate, or a negative number for none")
	case r.Burst < 1:
		return fmt.Errorf("--kube-api-burst is %d: at least 1 is needed", r.Burst)
	}
	return nil
}

// Config reads a kubeconfig file; an empty path means the ServiceAccount of
// the pod in which the process runs.
func (r *Rate) Config(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q (empty means the pod's own account): %w", kubeconfig, err)
	}
	cfg.QPS, cfg.Burst = r.QPS, r.Burst
	return cfg, nil
}

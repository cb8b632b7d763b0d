package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/scheduler/extender"
)

func (o *options) bind(fs *pflag.FlagSet) {
	o.flags.Bind(fs)
	// Every replica answers, and none reconciles: these have no meaning here.
	for _, name := range []string{
		"leader-elect", "leader-election-namespace", "leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period", "concurrency",
	} {
		_ = fs.MarkHidden(name)
	}
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the host cluster; empty: the pod's own account")
	fs.StringVar(&o.namespace, "namespace", "dpf-operator-system", "namespace of the DPUVolumeAttachments")
	fs.StringSliceVar(&o.drivers, "driver-name", []string{podvolume.DefaultDriver}, "CSI drivers whose volumes count")
	fs.StringVar(&o.bindAddress, "bind-address", ":8888", "where to answer the scheduler")
	fs.StringVar(&o.tlsCert, "tls-cert-file", "", "certificate to serve with, re-read when it changes; empty: plain HTTP")
	fs.StringVar(&o.tlsKey, "tls-key-file", "", "key of --tls-cert-file")
	fs.StringVar(&o.clientCA, "client-ca-file", "", "answer only those with a certificate of these authorities; empty: everyone")
	fs.DurationVar(&o.timeout, "request-timeout", extender.DefaultTimeout, "how long one request may take; keep it below the scheduler's httpTimeout")
	fs.Int64Var(&o.maxBodyBytes, "max-body-bytes", extender.DefaultMaxBody, "largest request that is read")
	fs.DurationVar(&o.probePeriod, "probe-period", 5*time.Second, "how often the API server is asked for a sign of life, from which the index's age is told")
}

func (o *options) validate() error {
	switch {
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return fmt.Errorf("--tls-cert-file %q and --tls-key-file %q: set both or none", o.tlsCert, o.tlsKey)
	case o.clientCA != "" && o.tlsCert == "":
		return fmt.Errorf("--client-ca-file needs --tls-cert-file: clients show certificates over TLS alone")
	case o.timeout <= 0 || o.probePeriod <= 0 || o.maxBodyBytes <= 0:
		return fmt.Errorf("--request-timeout %s, --probe-period %s and --max-body-bytes %d must be positive", o.timeout, o.probePeriod, o.maxBodyBytes)
	}
	if err := podvolume.ValidDrivers(o.drivers); err != nil {
		return fmt.Errorf("--driver-name: %w", err)
	}
	o.flags.LeaderElect = false
	return o.flags.Validate()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/writelog"
)

// targetOptions are the flags about the target.
type targetOptions struct {
	targetAddress, targetAdmin, targetListen, mediumLogDir string

	epochs bool
}

func (o *targetOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.targetAddress, "target-address", "", "host:port at which DPUs reach the target; empty: they use the files of --target-dir (controller)")
	fs.StringVar(&o.targetAdmin, "target-admin", "", "unix socket by which the controller has the target take rights back: goes with --target-address (controller), required (target)")
	fs.StringVar(&o.targetListen, "target-listen", fmt.Sprintf(":%d", blocktarget.DefaultPort), "address to serve volumes on, by NBD (target)")
	fs.BoolVar(&o.epochs, "epochs", false, "have the target know under which epoch each DPU writes: fence volumes by epochs, and open devices under them; give it to both or to neither (controller, plugin)")
	fs.StringVar(&o.mediumLogDir, "medium-log-dir", "", "directory for the logs of accepted writes and of reads; empty records none (target, driver)")
}

// target is what the controller knows of the target; nil if DPUs use the files.
func (o *options) target() (*localvendor.Target, error) {
	if o.targetAddress == "" && o.targetAdmin == "" {
		if o.epochs {
			return nil, errors.New("--epochs needs --target-address and --target-admin: a file knows no epochs")
		}
		return nil, nil
	}
	if o.targetAddress == "" || o.targetAdmin == "" {
		return nil, errors.New("--target-address and --target-admin go together: give both or neither")
	}
	switch host, _, err := net.SplitHostPort(o.targetAddress); {
	case err != nil:
		return nil, fmt.Errorf("--target-address %q is no host:port: %w", o.targetAddress, err)
	case host == "" || strings.HasPrefix(host, "$("): // the kubelet fills in what it knows
		return nil, fmt.Errorf("--target-address %q names no host: is there a Service of the name, and was it there before this pod?", o.targetAddress)
	}
	store, err := localvendor.StoreID(o.targetDir)
	if err != nil {
		return nil, err
	}
	admin := blocktarget.NewAdmin(o.targetAdmin, store, o.plugin.Timeout)
	t := &localvendor.Target{Address: o.targetAddress, Revoker: admin, Data: admin}
	if o.epochs {
		t.Fencer = admin
	}
	return t, nil
}

// runTarget serves the volumes of the target directory over TCP.
func (o *options) runTarget(ctx context.Context) error {
	if o.targetAdmin == "" {
		return errors.New("--target-admin is missing: without it no right can be taken back")
	}
	store, err := localvendor.StoreID(o.targetDir)
	if err != nil {
		return err
	}
	held, err := localvendor.HoldTarget(o.targetDir)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	server := blocktarget.NewServer(blocktarget.Options{Grants: localvendor.Grants{Dir: o.targetDir}, Record: o.recorder(), Log: ctrl.Log.WithName("target")})
	if err := measureTarget(metrics.Registry, server); err != nil {
		return err
	}
	volumes, err := net.Listen("tcp", o.targetListen)
	if err != nil {
		return fmt.Errorf("serve volumes: %w", err)
	}
	admin, err := blocktarget.ListenAdmin(o.targetAdmin)
	if err != nil {
		return errors.Join(err, volumes.Close())
	}
	ctrl.Log.Info("serving volumes", "address", volumes.Addr().String(), "dir", o.targetDir)
	return daemon.Beside(ctx, o.metrics, metrics.Registry, nil, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		side := make(chan error, 1)
		go func() {
			defer cancel()
			side <- blocktarget.ServeAdmin(ctx, admin, server.AdminHandler(store))
		}()
		err := server.Serve(ctx, volumes)
		cancel()
		return errors.Join(err, <-side)
	})
}

// recorder opens the logs of accepted writes; nil if none are wanted.
func (o *options) recorder() func(file string) (blocktarget.Recorder, error) {
	if o.mediumLogDir == "" {
		return nil
	}
	return func(file string) (blocktarget.Recorder, error) { return writelog.Open(o.mediumLogDir, file) }
}

// measureTarget shows the counters of the server as metrics.
func measureTarget(reg prometheus.Registerer, s *blocktarget.Server) error {
	gauge := func(name, help string, of func(blocktarget.Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(s.Stats()) })
	}
	counter := func(name, help string, of func(blocktarget.Stats) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return of(s.Stats()) })
	}
	var errs error
	for _, c := range []prometheus.Collector{
		gauge("moor_target_sessions", "Volumes that are open now, each by each DPU.", func(s blocktarget.Stats) float64 { return float64(s.Sessions) }),
		gauge("moor_target_connections", "TCP connections now.", func(s blocktarget.Stats) float64 { return float64(s.Connections) }),
		counter("moor_target_reads_total", "Read requests.", func(s blocktarget.Stats) float64 { return float64(s.Reads) }),
		counter("moor_target_writes_total", "Write requests.", func(s blocktarget.Stats) float64 { return float64(s.Writes) }),
		counter("moor_target_read_bytes_total", "Bytes read.", func(s blocktarget.Stats) float64 { return float64(s.BytesRead) }),
		counter("moor_target_written_bytes_total", "Bytes written.", func(s blocktarget.Stats) float64 { return float64(s.BytesWritten) }),
	} {
		errs = errors.Join(errs, reg.Register(c))
	}
	return errs
}

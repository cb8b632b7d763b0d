package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/scheduler/extender"
	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// manager builds the manager over the host cluster.
func (o *options) manager() (ctrl.Manager, error) {
	config, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, coordinationv1.AddToScheme, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)
	if err != nil {
		return nil, err
	}
	return kube.NewManager(config, scheme, o.flags, "scheduler-extender", cache.Options{
		DefaultTransform: state.Slim,
		ByObject: map[client.Object]cache.ByObject{
			&storagev1alpha1.DPUVolumeAttachment{}: {Namespaces: map[string]cache.Config{o.namespace: {}}},
		},
	})
}

// setUp joins the index, its watches and the server in the manager.
func (o *options) setUp(ctx context.Context, mgr ctrl.Manager) error {
	store := state.New(o.drivers, clock.RealClock{})
	pods := refused.New(clock.RealClock{}, extender.Keep)
	store.OnOpened(pods.Opened)
	if err := store.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := errors.Join(store.Register(metrics.Registry, "extender"), store.RegisterAge(metrics.Registry, "extender")); err != nil {
		return err
	}
	handler, err := extender.New(extender.Options{Source: store, Refused: pods, Timeout: o.timeout, MaxBody: o.maxBodyBytes, Registerer: metrics.Registry})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("index", func(*http.Request) error { return store.Ready() }); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	config, err := o.tls(mgr)
	if err != nil {
		return err
	}
	probe := store.Probing(o.probePeriod, func(ctx context.Context) error {
		return mgr.GetAPIReader().List(ctx, &moorv1alpha1.DPUStorageNodeList{}, client.Limit(1))
	})
	for _, r := range []manager.Runnable{
		manager.RunnableFunc(probe), &extender.Server{Address: o.bindAddress, TLS: config, Handler: handler},
		&extender.Retry{Client: mgr.GetClient(), Namespace: o.namespace, Refused: pods, Clock: clock.RealClock{}},
	} {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("add to the manager: %w", err)
		}
	}
	return nil
}

// tls is the configuration of the server; nil for plain HTTP. The manager
// watches the certificate's file.
func (o *options) tls(mgr ctrl.Manager) (*tls.Config, error) {
	if o.tlsCert == "" {
		return nil, nil
	}
	watcher, err := certwatcher.New(o.tlsCert, o.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert-file %s and --tls-key-file %s: %w", o.tlsCert, o.tlsKey, err)
	}
	if err := mgr.Add(watcher); err != nil {
		return nil, fmt.Errorf("watch the certificate: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate}
	if o.clientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, fmt.Errorf("read --client-ca-file: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--client-ca-file %s holds no certificate in PEM form", o.clientCA)
	}
	return config, nil
}

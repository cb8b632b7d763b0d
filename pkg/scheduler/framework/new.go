package framework

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// Args are the plugin's arguments, pluginConfig[].args in the scheduler's
// configuration.
type Args struct {
	// DriverName is the CSI driver whose volumes count; csi.snap.nvidia.com if
	// no driver is named.
	DriverName string `json:"driverName,omitempty"`
	// DriverNames are several, in place of DriverName.
	DriverNames []string `json:"driverNames,omitempty"`
	// Namespace of the DPUVolumeAttachments; dpf-operator-system if empty.
	Namespace string `json:"namespace,omitempty"`
}

// DefaultNamespace is that of Args; their driver is podvolume.DefaultDriver.
const DefaultNamespace = "dpf-operator-system"

// patience is how long the first list of Moor's kinds may take before the
// scheduler gives up its start.
const patience = 2 * time.Minute

// Factory returns a factory of the plugin, for the registry of a kube-scheduler.
// The plugin's metrics are registered with the registerer given. One profile of
// a scheduler may have the plugin.
func Factory(metrics prometheus.Registerer) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, configured runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, err := parse(configured)
		if err != nil {
			return nil, err
		}
		own, err := own(handle.KubeConfig(), args.Namespace)
		if err != nil {
			return nil, err
		}
		store := state.New(args.DriverNames, clock.RealClock{})
		p := &Plugin{scheduler: handle, source: store, refused: refused.New(clock.RealClock{}, 0)}
		store.OnOpened(p.refused.Opened)
		if err := store.Follow(ctx, watches{own, handle.SharedInformerFactory()}); err != nil {
			return nil, err
		}
		if err := store.Register(metrics, "scheduler"); err != nil {
			return nil, err
		}
		if _, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(ended(p.refused)); err != nil {
			return nil, fmt.Errorf("watch pods: %w", err)
		}
		if err := start(ctx, own, args.Namespace); err != nil {
			return nil, err
		}
		go p.run(ctx, store)
		return p, nil
	}
}

// parse reads the arguments.
func parse(configured runtime.Object) (Args, error) {
	args := Args{}
	if raw, ok := configured.(*runtime.Unknown); ok {
		if err := yaml.UnmarshalStrict(raw.Raw, &args); err != nil {
			return args, fmt.Errorf("read the arguments of plugin %s: %w", Name, err)
		}
	} else if configured != nil {
		return args, fmt.Errorf("read the arguments of plugin %s: they are %T", Name, configured)
	}
	switch one, several := args.DriverName != "", len(args.DriverNames) > 0; {
	case one && several:
		return args, fmt.Errorf("the arguments of plugin %s: driverName %s and driverNames %v are both set: name all drivers in driverNames", Name, args.DriverName, args.DriverNames)
	case !several:
		args.DriverNames = []string{cmp.Or(args.DriverName, podvolume.DefaultDriver)}
	}
	if err := podvolume.ValidDrivers(args.DriverNames); err != nil {
		return args, fmt.Errorf("the arguments of plugin %s: %w", Name, err)
	}
	if args.Namespace == "" {
		args.Namespace = DefaultNamespace
	}
	return args, nil
}

// own is the cache of what the scheduler does not watch by itself.
func own(config *rest.Config, namespace string) (cache.Cache, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("name the kinds of plugin %s: %w", Name, err)
		}
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "", "" // of CRDs there is JSON alone
	own, err := cache.New(config, cache.Options{
		Scheme: scheme, DefaultTransform: state.Slim,
		ByObject: map[client.Object]cache.ByObject{
			&storagev1alpha1.DPUVolumeAttachment{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of plugin %s: %w", Name, err)
	}
	return own, nil
}

// start runs the cache until ctx ends, and returns when it has its first lists:
// no pod is placed before.
func start(ctx context.Context, own cache.Cache, namespace string) error {
	ended := make(chan error, 1)
	go func() { ended <- own.Start(ctx) }()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if own.WaitForCacheSync(limited) {
		return nil
	}
	select {
	case err := <-ended:
		return fmt.Errorf("watch DPUStorageNodes and DPUVolumeAttachments: %w", err)
	default:
		return fmt.Errorf("list DPUStorageNodes, and DPUVolumeAttachments of namespace %s, within %s (are the CRDs of the host cluster installed, "+
			"and may the scheduler's account list and watch them?): %w", namespace, patience, context.Cause(limited))
	}
}

// run has pods tried again until ctx ends: all once the index is complete, then
// those that it is told of.
func (p *Plugin) run(ctx context.Context, store *state.Store) {
	if !toolscache.WaitForCacheSync(ctx.Done(), func() bool { return store.Ready() == nil }) {
		return
	}
	p.refused.All()
	p.refused.Run(ctx, p.again)
}

// again has the scheduler try pods again.
func (p *Plugin) again(ctx context.Context, pods []*corev1.Pod) error {
	due := map[string]*corev1.Pod{}
	for _, pod := range pods {
		due[key(pod)] = pod
	}
	p.scheduler.Activate(klog.FromContext(ctx), due)
	return nil
}

// ended forgets pods that have a node or are gone.
func ended(pods *refused.Pods) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				pods.End(pod.UID)
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				pods.End(pod.UID)
			}
		},
	}
}

// watches are the scheduler's own of claims and volumes, and those of Moor's
// kinds.
type watches struct {
	own    cache.Cache
	shared informers.SharedInformerFactory
}

// GetInformer returns the informer of an object's kind.
func (w watches) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	switch o.(type) {
	case *corev1.PersistentVolumeClaim:
		return w.shared.Core().V1().PersistentVolumeClaims().Informer(), nil
	case *corev1.PersistentVolume:
		return w.shared.Core().V1().PersistentVolumes().Informer(), nil
	}
	return w.own.GetInformer(ctx, o, opts...)
}

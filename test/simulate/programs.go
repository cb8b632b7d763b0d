package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/attacher"
	dpuattachment "github.com/moor-storage/moor/pkg/controller/dpucluster/attachment"
	"github.com/moor-storage/moor/pkg/node/dpu"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/pkg/node/dpu/patrol"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/engine"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

// passTimeout bounds each pass of the node driver.
const passTimeout = 20 * time.Second

// bubble is the clock of the reconcilers: that of the bubble, as everything else's.
type bubble struct{}

// Now is the virtual time.
func (bubble) Now() time.Time { return time.Now() }

// Since is how long ago a virtual time was.
func (bubble) Since(t time.Time) time.Duration { return time.Since(t) }

// silent is a recorder of events that are not read.
type silent struct{}

// Event is dropped.
func (silent) Event(runtime.Object, string, string, string) {}

// Eventf is dropped.
func (silent) Eventf(runtime.Object, string, string, string, ...any) {}

// AnnotatedEventf is dropped.
func (silent) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}

// named is the request for an object of this name, if the change is of one of the kinds.
func named(e cluster.Event, namespace string, kinds ...string) []reconcile.Request {
	for _, k := range kinds {
		if e.Key.Kind == k {
			return []reconcile.Request{request(namespace, e.Key.Name)}
		}
	}
	return nil
}

// attachmentsOf are the DPUVolumeAttachments that a change concerns: its own, that of the
// VolumeAttachment, those of the volume of a claim, those of a host, those of a pod's volume,
// and the replicas beside an attachment.
func attachmentsOf(host *link, e cluster.Event) []reconcile.Request {
	of := func(concerned func(*storagev1alpha1.DPUVolumeAttachment) bool) []reconcile.Request {
		var out []reconcile.Request
		for _, o := range host.view.Objects("DPUVolumeAttachment") {
			if a := o.(*storagev1alpha1.DPUVolumeAttachment); concerned(a) {
				out = append(out, request(a.Namespace, a.Name))
			}
		}
		return out
	}
	switch e.Key.Kind {
	case "VolumeAttachment":
		return []reconcile.Request{request(kubetest.HostNamespace, e.Key.Name)}
	case "DPUVolumeAttachment":
		own := request(kubetest.HostNamespace, e.Key.Name)
		return append(of(func(a *storagev1alpha1.DPUVolumeAttachment) bool {
			return a.Spec.Role == storagev1alpha1.RoleReplica && a.Name != e.Key.Name && strings.HasSuffix(e.Key.Name, "-"+a.Spec.DPUVolumeName)
		}), own)
	case "Pod":
		return of(func(a *storagev1alpha1.DPUVolumeAttachment) bool { return e.Key.Name == podOf(a.Spec.DPUVolumeName) })
	case "WriterClaim", "DPUVolume":
		return of(func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.Spec.DPUVolumeName == e.Key.Name })
	case "DPUStorageNode", "Node":
		return of(func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.Spec.DPUNodeName == e.Key.Name })
	}
	return nil
}

// controller is snap-controller.
func (w *World) controller(l *life) {
	there := l.watch(w.DPU, index.DPU())
	l.run("attachment", &dpuattachment.Reconciler{DPU: l.cluster(there), Clock: bubble{}}, func(_ *link, e cluster.Event) []reconcile.Request {
		return named(e, kubetest.DPUNamespace, "VolumeAttachment", "SVVolumeAttachment")
	})
}

// vendor is the CSI controller of the vendor, called by its attacher.
type vendor struct{ life *life }

// Publish admits a DPU.
func (v vendor) Publish(ctx context.Context, r attacher.PublishRequest) (map[string]string, error) {
	w := v.life.process.world
	return nil, v.life.Call(ctx, engine.Write, "ControllerPublish of "+r.VolumeHandle+" to "+r.NodeID, func() error {
		v.life.Tell("the storage admits %s to %s", r.NodeID, r.VolumeHandle)
		w.Storage.Admit(r.VolumeHandle, r.NodeID)
		w.Judge.Look(r.VolumeHandle)
		return nil
	})
}

// Unpublish takes that back.
func (v vendor) Unpublish(ctx context.Context, volume, node string, _ map[string]string) error {
	return v.life.Call(ctx, engine.Write, "ControllerUnpublish of "+volume+" from "+node, func() error {
		v.life.Tell("the storage lets go of %s to %s", node, volume)
		v.life.process.world.Storage.Revoke(volume, node)
		return nil
	})
}

// Fence has the storage accept nothing below an epoch, where it knows epochs.
func (v vendor) Fence(ctx context.Context, volume string, epoch int64) error {
	return v.life.Call(ctx, engine.Write, fmt.Sprintf("Fence of %s below epoch %d", volume, epoch), func() error {
		err := v.life.process.world.Storage.Fence(volume, epoch)
		if err == nil {
			v.life.Tell("the storage accepts nothing of %s below epoch %d", volume, epoch)
		}
		return err
	})
}

// attacherOfVendor is snap-external-attacher.
func (w *World) attacherOfVendor(l *life) {
	there := l.watch(w.DPU, index.Attacher())
	l.run("attacher", &attacher.Reconciler{
		DPU: l.cluster(there), Driver: vendor{l}, DriverName: driver, Features: attacher.Features{Publish: true, Fence: w.plan.Epochs}, Timeout: 10 * time.Second, Clock: bubble{},
	}, func(_ *link, e cluster.Event) []reconcile.Request {
		if a, ok := e.Object.(*storagev1alpha1.VolumeAttachment); ok && w.plan.Epochs && writer.ToFence(a) > 0 {
			return named(e, kubetest.DPUNamespace, "VolumeAttachment")
		}
		return named(e, kubetest.DPUNamespace, "SVVolumeAttachment")
	})
}

// nodeDriver is snap-node-driver of a DPU.
func (w *World) nodeDriver(d *hardware.DPU) func(*life) {
	return func(l *life) {
		there := l.watch(w.DPU, nil, "VolumeAttachment", "WriterClaim")
		store := &attachments.Store{DPU: l.cluster(there), Node: d.Name, Namespace: kubetest.DPUNamespace}
		queue := attachments.NewQueue(store)
		card := card{l, d}
		shown := exposures.New(exposures.Options{
			Root: d.Root(), Attachments: store, Timeout: passTimeout, Boot: fmt.Sprintf("boot-%d", d.Boots), Drain: hardware.DrainBound, Clock: bubble{},
			Open: func(string) provisioner.DPU { return card }, Ways: l.waysKnown(),
		})
		made, memory := devices.New(plugins{card}), journal.Open(d.Journal())
		options := dpu.Options{
			Attachments: store, Queue: queue, Exposures: shown, Devices: made, Journal: memory,
			Changed: func() {}, Timeout: passTimeout, Clock: bubble{},
		}
		if w.plan.Leases {
			options.Lease = l.keepLease(d, store, shown)
		}
		l.watchWays(store, shown)
		passes := l.run("driver", dpu.New(options), func(k *link, e cluster.Event) []reconcile.Request { return ofDPU(d.Name, k, e) })
		rounds := patrol.New(patrol.Options{
			Attachments: store, Queue: queue, Exposures: shown, Devices: made, Journal: memory, Changed: func() {}, Period: patrolPeriod, Timeout: passTimeout, Clock: ticking{},
		})
		l.run("patrol", reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			err := rounds.Round(ctx)
			queue.AddWaiting(ctx) // as when a plugin comes back
			return ctrl.Result{RequeueAfter: patrolPeriod}, err
		}), func(*link, cluster.Event) []reconcile.Request { return nil }).add(request("", "round"), time.Second)
		l.queued = func() {
			for len(queue.Events()) > 0 {
				e := <-queue.Events()
				passes.add(request(e.Object.GetNamespace(), e.Object.GetName()), 0)
			}
		}
	}
}

// patrolPeriod is the time between two rounds of a patrol.
const patrolPeriod = 10 * time.Second

// ofDPU are the attachments of a DPU that a change concerns.
func ofDPU(name string, k *link, e cluster.Event) []reconcile.Request {
	o, gone := e.Object, e.Object == nil
	if gone {
		o = e.Before
	}
	switch o := o.(type) {
	case *storagev1alpha1.VolumeAttachment:
		if o.Spec.NodeName == name {
			return []reconcile.Request{request(o.Namespace, o.Name)}
		}
	case *moorv1alpha1.WriterClaim:
		var out []reconcile.Request
		for _, a := range k.view.Objects("VolumeAttachment") {
			if a := a.(*storagev1alpha1.VolumeAttachment); a.Spec.NodeName == name && a.VolumeName() == o.Name && !a.IsReplica() {
				out = append(out, request(a.Namespace, a.Name))
			}
		}
		return out
	}
	return nil
}

// driver is the name of the vendor's CSI driver.
const driver = "vendor.csi"

// summary is what the story says of an object of the DPU cluster.
func summary(s *cluster.Server, k cluster.Key) string {
	switch k.Kind {
	case "WriterClaim":
		c, found := cluster.Find[*moorv1alpha1.WriterClaim](s, k.Namespace, k.Name)
		if found && c.Status != nil {
			return fmt.Sprintf(": %s %s epoch %d", c.Status.Phase, c.Status.Holder, c.Status.Epoch)
		}
	case "VolumeAttachment":
		a, found := cluster.Find[*storagev1alpha1.VolumeAttachment](s, k.Namespace, k.Name)
		if found {
			return ": " + summaryOf(a)
		}
	}
	if _, found := s.Object(k); !found {
		return ": it is gone"
	}
	return ""
}

func summaryOf(a *storagev1alpha1.VolumeAttachment) string {
	out := fmt.Sprintf("epoch %d, %d finalizers", a.Spec.Epoch, len(a.Finalizers))
	if !a.DeletionTimestamp.IsZero() {
		out += ", goes"
	}
	if a.Status.StorageAttached {
		out += ", stored"
	}
	if a.Status.DPU.Attached {
		out += fmt.Sprintf(", attached under %d", a.Status.DPU.Epoch)
	}
	if a.Status.DPU.RetiredEpoch > 0 {
		out += fmt.Sprintf(", retired %d", a.Status.DPU.RetiredEpoch)
	}
	return out
}

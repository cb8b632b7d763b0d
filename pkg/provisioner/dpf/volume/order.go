package volume

import (
	"context"
	"slices"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// Order is the order of the volumes in a listing. One in pages sorts them once, when it
// begins: a page costs what is on it. A token is the name after which its page begins, so
// it is good for whatever order is there: that of a later listing that began meanwhile
// has every volume that is there throughout.
type Order struct {
	options request.Options
	// names are those of the volumes when the last listing began; nil if none has.
	names atomic.Pointer[[]string]
}

// NewOrder reads the objects.
func NewOrder(o request.Options) *Order { return &Order{options: o} }

// From are the names from which a page is taken, of volumes that their vendors have made.
// They must not be changed.
func (o *Order) From(ctx context.Context, page provisioner.Page) ([]string, error) {
	names := o.names.Load()
	if page.After == "" || names == nil {
		there, err := o.made(ctx)
		if err != nil {
			return nil, err
		}
		slices.Sort(there)
		names = &there
		o.names.Store(names)
	}
	rest := *names
	if page.After != "" {
		from, found := slices.BinarySearch(rest, page.After)
		if found {
			from++
		}
		rest = rest[from:]
	}
	return rest, nil
}

// made are the names of the volumes that their vendors have made.
func (o *Order) made(ctx context.Context) ([]string, error) {
	var list storagev1alpha1.DPUVolumeList
	if err := o.options.Client.List(ctx, &list, client.InNamespace(o.options.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, request.Refused("list the volumes", err)
	}
	out := make([]string, 0, len(list.Items))
	for n := range list.Items {
		if v := &list.Items[n]; v.Status.Phase == storagev1alpha1.DPUVolumeBound {
			out = append(out, v.Name)
		}
	}
	return out, nil
}

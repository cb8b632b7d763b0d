package served

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// The times of a Guard. An API server publishes the schema of a CRD that was just applied after
// a second or two; what is read with an object is transformed within the other.
const (
	publishes = 5 * time.Second
	together  = time.Second
)

// Guard keeps out of a cache what was read by another's schema: a replica without its role
// would be taken for a primary, a volume without its replication for one that wants no
// replicas, and both would be written back so.
//
// A CRD that is replaced ends the watches of its kind after a second, and what they begin with
// then has lost fields already. Require finds that out too, and may be late.
type Guard struct {
	checker *checker
	end     func(error)

	mu sync.Mutex
	// sure is when it was known last that the schemas are Moor's.
	sure time.Time
}

// NewGuard is one for the cluster of that name in messages.
func NewGuard(cluster string, config *rest.Config, scheme *runtime.Scheme) (*Guard, error) {
	c, err := checkerOf(cluster, config, scheme)
	if err != nil {
		return nil, err
	}
	return newGuard(c, func(err error) {
		ctrl.Log.Error(err, "ending at once: what is read is not what was written")
		os.Exit(1)
	}), nil
}

func newGuard(c *checker, end func(error)) *Guard { return &Guard{checker: c, end: end} }

// Transform is a cache transform for all kinds that does what another does. It ends the
// process when a DPUVolumeAttachment or a DPUVolume is shown without what it has, because the
// API server drops it. One that has lost it for good, since it was written while another's CRDs
// stood, is told of in the log, and taken as it is.
func (g *Guard) Transform(and toolscache.TransformFunc) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if field := lost(o); field != "" {
			g.judge(o.(client.Object), field)
		}
		return and(o)
	}
}

// judge takes as long as the API server may need to publish its schemas, once for all objects
// that are read together.
func (g *Guard) judge(o client.Object, field string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if field == role {
		g.end(&DroppedError{Cluster: g.checker.cluster, Fields: []string{field}})
		return
	}
	for begin := time.Now(); time.Since(g.sure) > together; {
		err := g.checker.check()
		if _, dropped := errors.AsType[*DroppedError](err); dropped {
			g.end(err)
			return
		}
		if err == nil && time.Since(begin) >= publishes {
			break
		}
		<-time.After(retry)
	}
	g.sure = time.Now()
	ctrl.Log.Error(nil, "the object has lost a field for good: it was written while other CRDs stood in the place of Moor's",
		"namespace", o.GetNamespace(), "name", o.GetName(), "field", field)
}

// role is the one field that Moor's CRD gives to each object: without it there is no doubt.
const role = "DPUVolumeAttachment.spec.role"

// lost is a field that an object has at the API server and was shown without; none: it is whole.
func lost(o any) string {
	switch o := o.(type) {
	case *storagev1alpha1.DPUVolumeAttachment:
		if o.Spec.Role == "" {
			return role
		}
	case *storagev1alpha1.DPUVolume:
		switch {
		case o.Spec.Replication == nil && written(o, "spec", "replication"):
			return "DPUVolume.spec.replication"
		case o.Status.LastGrant == nil && written(o, "status", "lastGrant"):
			return "DPUVolume.status.lastGrant"
		}
	}
	return ""
}

// written reports whether the API server has on record that a field was written. The record
// goes with a field that is removed, and stays when the field is dropped.
func written(o client.Object, path ...string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.FieldsV1 != nil && names(e.FieldsV1.GetRawBytes(), path)
	})
}

// names reports whether fields, as the API server writes them down, have a path.
func names(fields json.RawMessage, path []string) bool {
	for _, name := range path {
		var of map[string]json.RawMessage
		if json.Unmarshal(fields, &of) != nil || of["f:"+name] == nil {
			return false
		}
		fields = of["f:"+name]
	}
	return true
}

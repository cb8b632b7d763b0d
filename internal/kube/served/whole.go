package served

import (
	"os"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Whole is a cache transform that does what another does, and ends the process when an API
// server shows a DPUVolumeAttachment without a role, which Moor's CRD gives to each: the schema
// that it was read by is another's, and with the role it lacks the difference between a replica
// and a primary.
//
// A CRD that is replaced ends the watches of its kind after a second, and what they begin with
// then has lost fields already. No later answer could undo what a reconciler makes of that.
func Whole(cluster string, transform toolscache.TransformFunc) toolscache.TransformFunc {
	return whole(cluster, transform, func(err error) {
		ctrl.Log.Error(err, "ending at once: a replica could be taken for a primary")
		os.Exit(1)
	})
}

func whole(cluster string, transform toolscache.TransformFunc, end func(error)) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if a, is := o.(*storagev1alpha1.DPUVolumeAttachment); is && a.Spec.Role == "" {
			end(&DroppedError{Cluster: cluster, Fields: []string{"DPUVolumeAttachment.spec.role"}})
		}
		return transform(o)
	}
}

package fleet

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/csiserver"
)

// vendorDriver is the driver of the vendor whose manifests are used
// (deploy/dpu/local-vendor.yaml).
const vendorDriver = "local.csi.moor.dev"

// vendor is a CSI controller that lets every DPU have every volume, at once.
type vendor struct {
	csispec.UnimplementedControllerServer
}

func (vendor) ControllerGetCapabilities(context.Context, *csispec.ControllerGetCapabilitiesRequest) (*csispec.ControllerGetCapabilitiesResponse, error) {
	out := &csispec.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csispec.ControllerServiceCapability_RPC_Type{csispec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csispec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME} {
		out.Capabilities = append(out.Capabilities, &csispec.ControllerServiceCapability{Type: &csispec.ControllerServiceCapability_Rpc{Rpc: &csispec.ControllerServiceCapability_RPC{Type: kind}}})
	}
	return out, nil
}

func (vendor) ControllerPublishVolume(context.Context, *csispec.ControllerPublishVolumeRequest) (*csispec.ControllerPublishVolumeResponse, error) {
	return &csispec.ControllerPublishVolumeResponse{}, nil
}

func (vendor) ControllerUnpublishVolume(context.Context, *csispec.ControllerUnpublishVolumeRequest) (*csispec.ControllerUnpublishVolumeResponse, error) {
	return &csispec.ControllerUnpublishVolumeResponse{}, nil
}

// ServeVendor plays the vendor's CSI controller at an endpoint (unix://...) until ctx
// ends.
func ServeVendor(ctx context.Context, endpoint string) error {
	return csiserver.Serve(ctx, endpoint, func(s *grpc.Server) {
		csispec.RegisterIdentityServer(s, csiserver.NewIdentity(vendorDriver, "scale", nil, csispec.PluginCapability_Service_CONTROLLER_SERVICE))
		csispec.RegisterControllerServer(s, vendor{})
	}, csiserver.Options{})
}

// Bind plays csi-provisioner and the binder of the DPU cluster until ctx ends: each
// new claim gets a volume.
func (f *Fleet) Bind(ctx context.Context) error {
	return Serve(ctx, f.bind, func(ctx context.Context, q Queue) error {
		return Follow(ctx, f.clients.DPU, &corev1.PersistentVolumeClaimList{}, func(o client.Object) {
			if pvc, ok := o.(*corev1.PersistentVolumeClaim); ok && pvc.Status.Phase != corev1.ClaimBound {
				q.Add(client.ObjectKeyFromObject(o))
			}
		})
	})
}

func (f *Fleet) bind(ctx context.Context, key types.NamespacedName) error {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, f.clients.DPU, key, claim)
	if err != nil || !found || claim.Status.Phase == corev1.ClaimBound {
		return err
	}
	return BindClaim(ctx, f.clients.DPU, claim, corev1.CSIPersistentVolumeSource{Driver: vendorDriver, VolumeHandle: "handle-" + claim.Name})
}

// BindClaim makes the volume of a claim and binds both, as csi-provisioner and
// kube-controller-manager do. It is called pv-<claim>.
func BindClaim(ctx context.Context, c client.Client, claim *corev1.PersistentVolumeClaim, source corev1.CSIPersistentVolumeSource) error {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": source.Driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &source},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}
	if claim.Spec.StorageClassName != nil {
		pv.Spec.StorageClassName = *claim.Spec.StorageClassName
	}
	if _, err := kube.Create(ctx, c, pv); err != nil {
		return fmt.Errorf("make the volume of claim %s: %w", claim.Name, err)
	}
	if _, err := kube.PatchStatus(ctx, c, pv, func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound }); err != nil {
		return err
	}
	if _, err := kube.Patch(ctx, c, claim, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = pv.Name }); err != nil {
		return err
	}
	_, err := kube.PatchStatus(ctx, c, claim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests}
	})
	return err
}

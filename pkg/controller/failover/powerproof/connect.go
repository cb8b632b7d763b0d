package powerproof

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
)

// What DPF has of the BMC of a DPU: its kind, and its Secrets.
var dpuDevice = schema.GroupVersionKind{Group: "provisioning.dpu.nvidia.com", Version: "v1alpha1", Kind: "DPUDevice"}

const (
	dpfPassword = "bmc-shared-password"                    //nolint:gosec // the name of a Secret
	dpfCA       = "dpf-provisioning-ca-secret"             //nolint:gosec // the name of a Secret
	dpfClient   = "dpf-provisioning-redfish-client-secret" //nolint:gosec // the name of a Secret
	// dpfSystem is a part of the id that BlueField's BMC gives the DPU.
	dpfSystem = "Bluefield"
	dpfPort   = 443
)

// config is how the BMC of a machine is reached. Secrets are read from the API server
// itself each time, so that none is kept, and a password that was changed is known at once.
func (k *Keeper) config(ctx context.Context, control *moorv1alpha1.PowerControl, of machine) (redfish.Config, error) {
	bmc := control.Spec.Host
	if of == theDPU {
		bmc = control.Spec.DPU
	}
	switch {
	case bmc != nil:
		return k.ofBMC(ctx, bmc)
	case of == theDPU && control.Spec.DPUDevice != nil:
		return k.ofDevice(ctx, control.Spec.DPUDevice)
	}
	return redfish.Config{}, fmt.Errorf("PowerControl %s has no BMC of the %s", control.Name, of)
}

func (k *Keeper) ofBMC(ctx context.Context, bmc *moorv1alpha1.BMC) (redfish.Config, error) {
	secret, err := k.secret(ctx, bmc.SecretName)
	if err != nil {
		return redfish.Config{}, err
	}
	out := redfish.Config{
		Endpoint: bmc.Address, System: bmc.SystemID, Want: power.Identity{SerialNumber: bmc.SerialNumber, UUID: bmc.UUID},
		Username: string(secret["username"]), Password: string(secret["password"]), CA: secret["ca.crt"], Insecure: bmc.InsecureSkipVerify, Clock: k.o.Clock,
	}
	if out.Username == "" || out.Password == "" {
		return redfish.Config{}, fmt.Errorf("the Secret %s of a BMC lacks username or password", bmc.SecretName)
	}
	out.Certificate, err = certificate(bmc.SecretName, secret)
	return out, err
}

// ofDevice is the BMC of a DPU that DPF knows, with DPF's credentials. A Secret that the
// DPUDevice names and that is missing is not replaced by the shared one, as in DPF.
func (k *Keeper) ofDevice(ctx context.Context, d *moorv1alpha1.DPUDeviceBMC) (redfish.Config, error) {
	device := &unstructured.Unstructured{}
	device.SetGroupVersionKind(dpuDevice)
	found, err := kube.Find(ctx, k.o.Host.Live, client.ObjectKey{Namespace: k.o.Namespace, Name: d.Name}, device)
	if err != nil || !found {
		return redfish.Config{}, k.unreadable("DPUDevice", d.Name, err)
	}
	text := func(path ...string) string { s, _, _ := unstructured.NestedString(device.Object, path...); return s }
	ip, port := text("status", "bmcIp"), number(device, "status", "bmcPort")
	if ip == "" {
		ip = text("spec", "bmcIp")
	}
	if port == 0 {
		port = number(device, "spec", "bmcPort")
	}
	if port == 0 {
		port = dpfPort
	}
	if ip == "" {
		return redfish.Config{}, fmt.Errorf("DPUDevice %s has no address of its BMC (status.bmcIp)", d.Name)
	}
	name := text("spec", "bmcCredentialSecretName")
	if name == "" {
		name = dpfPassword
	}
	password, err := k.secret(ctx, name)
	if err != nil {
		return redfish.Config{}, err
	}
	ca, err := k.secret(ctx, dpfCA)
	if err != nil {
		return redfish.Config{}, err
	}
	own, err := k.secret(ctx, dpfClient)
	if err != nil {
		return redfish.Config{}, err
	}
	out := redfish.Config{
		Endpoint: "https://" + net.JoinHostPort(ip, strconv.FormatInt(port, 10)), System: dpfSystem, Want: power.Identity{SerialNumber: text("spec", "serialNumber")},
		Username: d.Username, Password: string(password["password"]), CA: ca["ca.crt"], Clock: k.o.Clock,
	}
	if len(out.CA) == 0 {
		out.CA = ca["tls.crt"]
	}
	out.Certificate, err = certificate(dpfClient, own)
	return out, err
}

func number(o *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...)
	return n
}

// secret is what a Secret holds. No error has any of it.
func (k *Keeper) secret(ctx context.Context, name string) (map[string][]byte, error) {
	s := &corev1.Secret{}
	found, err := kube.Find(ctx, k.o.Host.Live, client.ObjectKey{Namespace: k.o.Namespace, Name: name}, s)
	if err != nil || !found {
		return nil, k.unreadable("Secret", name, err)
	}
	return s.Data, nil
}

// unreadable says what is to be done where something of a BMC cannot be read.
func (k *Keeper) unreadable(kind, name string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s %s of a BMC is not in namespace %s", kind, name, k.o.Namespace)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s %s of a BMC may not be read: apply deploy/host/power: %w", kind, name, err)
	}
	return fmt.Errorf("read what the BMC is reached by: %w", err)
}

// certificate is the client's own, nil if the Secret has none.
func certificate(name string, secret map[string][]byte) (*tls.Certificate, error) {
	if len(secret["tls.crt"]) == 0 {
		return nil, nil //nolint:nilnil // most BMCs ask for none
	}
	pair, err := tls.X509KeyPair(secret["tls.crt"], secret["tls.key"])
	if err != nil { // its text may quote what it could not read
		return nil, errors.New("the Secret " + name + " of a BMC has tls.crt and tls.key that are no certificate and its key")
	}
	return &pair, nil
}

package powerproof

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestConfig: a BMC of our own object, with what its Secret has; and what is told where
// that does not suffice, which is no secret.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		secret map[string]string
		words  string
	}{
		"all that is needed":      {map[string]string{"username": "root", "password": "s3cret", "ca.crt": "ca"}, ""},
		"no user":                 {map[string]string{"password": "s3cret"}, "lacks username or password"},
		"no password":             {map[string]string{"username": "root"}, "lacks username or password"},
		"a key that is none":      {map[string]string{"username": "root", "password": "s3cret", "tls.crt": "s3cret", "tls.key": "s3cret"}, "no certificate and its key"},
		"no such Secret":          {nil, "Secret bmc of a BMC is not in namespace"},
		"a key without a partner": {map[string]string{"username": "root", "password": "s3cret", "tls.crt": "s3cret"}, "no certificate and its key"},
	} {
		s := newKit(t, func(p *moorv1alpha1.PowerControlSpec) {
			p.Host.SystemID, p.Host.UUID, p.Host.InsecureSkipVerify = "1", "u", true
		})
		s.Host.Remove(secret("bmc", nil))
		if c.secret != nil {
			s.Host.Add(secret("bmc", c.secret))
		}
		got, err := s.k.config(t.Context(), s.control(), theHost)
		if (err == nil) != (c.words == "") || err != nil && (!strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		if err == nil && (got.Endpoint != "https://host" || got.System != "1" || got.Want.SerialNumber != "H" || got.Want.UUID != "u" || got.Username != "root" || got.Password != "s3cret" || string(got.CA) != "ca" || !got.Insecure) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	none := func(p *moorv1alpha1.PowerControlSpec) { p.Host, p.DPU = nil, nil }
	for of, s := range map[machine]*kit{theHost: newKit(t, none, byDevice), theDPU: newKit(t, none)} {
		if _, err := s.k.config(t.Context(), s.control(), of); err == nil || !strings.Contains(err.Error(), "has no BMC of the "+string(of)) {
			t.Errorf("no BMC of the %s: %v", of, err)
		}
	}
}

// TestOwnCertificate: a BMC that asks for one is shown the client's own, of the Secret.
func TestOwnCertificate(t *testing.T) {
	s := newKit(t)
	s.Host.Remove(secret("bmc", nil))
	s.Host.Add(secret("bmc", pair(t)))
	if got, err := s.k.config(t.Context(), s.control(), theHost); err != nil || got.Certificate == nil {
		t.Errorf("shown is %v, %v", got.Certificate, err)
	}
}

// pair is what the Secret of a BMC holds that asks for a certificate.
func pair(t *testing.T) map[string]string {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("bmc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"username": "root", "password": "s3cret", "tls.crt": string(cert), "tls.key": string(key)}
}

// TestRefusedReads: a right that is missing is told with what gives it, and any other failure as it is.
func TestRefusedReads(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for words, fails := range map[string]error{
		"apply deploy/host/power":         apierrors.NewForbidden(secrets, "bmc", nil),
		"read what the BMC is reached by": errors.New("no answer"),
	} {
		s := newKit(t)
		s.k.o.Host.Live = interceptor.NewClient(s.Host.Direct, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return fails
			},
		})
		if _, err := s.k.config(t.Context(), s.control(), theHost); !errors.Is(err, fails) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

// TestDPUDevice: address, serial number and credentials of DPF's own objects, by DPF's rules.
func TestDPUDevice(t *testing.T) {
	spec := map[string]any{"serialNumber": "MT1", "bmcIp": "10.0.0.1"}
	shared := map[string]string{"password": "shared"}
	for name, c := range map[string]struct {
		spec, status map[string]any
		secrets      map[string]map[string]string
		want, words  string
	}{
		"by the shared password":           {spec, nil, map[string]map[string]string{dpfPassword: shared}, "https://10.0.0.1:443 root shared MT1", ""},
		"what DPF has found goes first":    {spec, map[string]any{"bmcIp": "10.0.0.2", "bmcPort": int64(8443)}, map[string]map[string]string{dpfPassword: shared}, "https://10.0.0.2:8443 root shared MT1", ""},
		"by a password of its own":         {map[string]any{"serialNumber": "MT1", "bmcIp": "10.0.0.1", "bmcPort": int64(44), "bmcCredentialSecretName": "own"}, nil, map[string]map[string]string{"own": {"password": "mine"}, dpfPassword: shared}, "https://10.0.0.1:44 root mine MT1", ""},
		"its own password is missing":      {map[string]any{"serialNumber": "MT1", "bmcIp": "10.0.0.1", "bmcCredentialSecretName": "own"}, nil, map[string]map[string]string{dpfPassword: shared}, "", "Secret own of a BMC is not"},
		"no address":                       {map[string]any{"serialNumber": "MT1"}, nil, map[string]map[string]string{dpfPassword: shared}, "", "has no address of its BMC"},
		"no such DPUDevice":                {nil, nil, nil, "", "DPUDevice card of a BMC is not in namespace"},
		"no password at all":               {spec, nil, nil, "", "Secret bmc-shared-password of a BMC is not"},
		"an IPv6 address is put in braces": {map[string]any{"serialNumber": "MT1", "bmcIp": "fd00::1"}, nil, map[string]map[string]string{dpfPassword: shared}, "https://[fd00::1]:443 root shared MT1", ""},
		"a CA under the other key":         {spec, nil, map[string]map[string]string{dpfPassword: shared, dpfCA: {"tls.crt": "ca"}}, "https://10.0.0.1:443 root shared MT1", ""},
		"no CA":                            {spec, nil, map[string]map[string]string{dpfPassword: shared, dpfCA: nil}, "", "Secret dpf-provisioning-ca-secret of a BMC is not"},
		"no key of DPF's own":              {spec, nil, map[string]map[string]string{dpfPassword: shared, dpfClient: nil}, "", "Secret dpf-provisioning-redfish-client-secret of a BMC is not"},
		"a key of DPF's that is none":      {spec, nil, map[string]map[string]string{dpfPassword: shared, dpfClient: {"tls.crt": "s3cret"}}, "", "no certificate and its key"},
	} {
		s := newKit(t, byDevice)
		secrets := map[string]map[string]string{dpfCA: {"ca.crt": "ca"}, dpfClient: {}}
		maps.Copy(secrets, c.secrets)
		for name, data := range secrets {
			if data != nil {
				s.Host.Add(secret(name, data))
			}
		}
		if c.spec != nil {
			s.device(c.spec, c.status)
		}
		got, err := s.k.config(t.Context(), s.control(), theDPU)
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		if is := fmt.Sprint(got.Endpoint, " ", got.Username, " ", got.Password, " ", got.Want.SerialNumber); err == nil && (is != c.want || string(got.CA) != "ca" || got.System != "Bluefield" || got.Insecure) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

package remote

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestTargetOf(t *testing.T) {
	spdk := map[string]string{"targetType": "TCP", "targetAddr": "192.0.2.7", "targetPort": "4421", "nqn": "nqn.a", "model": "x", "lvolSize": "1"}
	want := snaprpc.TransportID{TrType: "NVDA_TCP", AdrFam: "ipv4", TrAddr: "192.0.2.7", TrSvcID: "4421", SubNQN: "nqn.a"}
	for _, tc := range []struct {
		name, key, value string
		want             func(*snaprpc.TransportID)
		says             string
	}{
		{name: "as SPDK-CSI writes it", key: "targetType", value: "TCP"},
		{name: "in small letters", key: "targetType", value: "tcp"},
		{name: "another transport stays", key: "targetType", value: "RDMA", want: func(i *snaprpc.TransportID) { i.TrType = "RDMA" }},
		{name: "the usual port", key: "targetPort", want: func(i *snaprpc.TransportID) { i.TrSvcID = "4420" }},
		{name: "IPv6", key: "targetAddr", value: "2001:db8::1", want: func(i *snaprpc.TransportID) { i.AdrFam, i.TrAddr = "ipv6", "2001:db8::1" }},
		{name: "no type", key: "targetType", says: "no targetType"},
		{name: "no address", key: "targetAddr", says: "no targetAddr"},
		{name: "no name", key: "nqn", says: "no nqn"},
		{name: "no port", key: "targetPort", value: "http", says: "no port"},
		{name: "no such port", key: "targetPort", value: "65536", says: "no port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			given := map[string]string{}
			for k, v := range spdk {
				given[k] = v
			}
			given[tc.key] = tc.value
			got, err := targetOf(given)
			if tc.says != "" {
				if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("got %v, want %q", err, tc.says)
				}
				return
			}
			want := want
			if tc.want != nil {
				tc.want(&want)
			}
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Fatalf("%v %s", err, d)
			}
		})
	}
}

func TestControllerNames(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{"pvc-1-pvc", strings.Repeat("x", 53), strings.Repeat("x", 54), "a/b", "a b", "_a"} {
		name := controllerOf(id)
		if len(name) > maxController || seen[name] {
			t.Errorf("controller %q of %q is too long or taken", name, id)
		}
		seen[name] = true
		if back := volumeOf(name); back != id && back != "" {
			t.Errorf("controller %q of %q reads back as %q", name, id, back)
		}
	}
	if got := controllerOf("pvc-1-pvc"); got != "nvme_pvc-1-pvc" || volumeOf(got) != "pvc-1-pvc" {
		t.Errorf("%q is not NVIDIA's name, or does not read back", got)
	}
	for bdev, want := range map[string]string{"nvme_vn1": "nvme_v", "nvme_v-n2n1": "nvme_v-n2", "nvme_v": "", "n1": ""} {
		if got := ofController(bdev); got != want {
			t.Errorf("bdev %q is of controller %q, want %q", bdev, got, want)
		}
	}
}

func TestKind(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want error
	}{
		{&snaprpc.Error{Code: -5, Message: "Input/output error"}, provisioner.ErrUnavailable},
		{&snaprpc.Error{Code: -110, Message: "Connection timed out"}, provisioner.ErrUnavailable},
		{&snaprpc.Error{Code: -19, Message: "No such device"}, provisioner.ErrNotFound},
		{&snaprpc.Error{Code: -1, Message: "failed: no such device"}, provisioner.ErrNotFound},
		{&snaprpc.Error{Code: -28, Message: "No space left on device"}, provisioner.ErrExhausted},
		{&snaprpc.Error{Code: -32602, Message: "Invalid parameters"}, provisioner.ErrInvalid},
		{&snaprpc.Error{Code: -32601, Message: "Method not found"}, provisioner.ErrUnsupported},
		{&snaprpc.Error{Code: -16, Message: "Device or resource busy"}, provisioner.ErrInUse},
		{&snaprpc.Error{Code: -1, Message: "bad state"}, provisioner.ErrPrecondition},
		{snaprpc.ErrUnavailable, provisioner.ErrUnavailable},
	} {
		if got := Kind(tc.err); !errors.Is(got, tc.want) || !errors.Is(got, tc.err) {
			t.Errorf("%v became %v, want %v", tc.err, got, tc.want)
		}
	}
}

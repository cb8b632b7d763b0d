package snaprpc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAttachControllerAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, result string
		want         []string
		refused      bool
	}{
		{name: "SPDK's list", result: `["nvme_vn1","nvme_vn2"]`, want: []string{"nvme_vn1", "nvme_vn2"}},
		{name: "one name", result: `"nvme_vn1"`, want: []string{"nvme_vn1"}},
		{name: "no namespace", result: `[]`, want: []string{}},
		{name: "another shape", result: `{"name":"nvme_vn1"}`, refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(serve(t, reply(`{"jsonrpc":"2.0","id":ID,"result":`+tc.result+`}`)), time.Minute)
			got, err := c.BdevNvmeAttachController(t.Context(), "nvme_v", TransportID{})
			if (err != nil) != tc.refused || !cmp.Equal(got, tc.want) {
				t.Fatalf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestSameTransportID(t *testing.T) {
	asked := TransportID{TrType: "NVDA_TCP", AdrFam: "ipv4", TrAddr: "192.0.2.1", TrSvcID: "4420", SubNQN: "nqn.a"}
	for _, tc := range []struct {
		name string
		told func(*TransportID)
		want bool
	}{
		{"in SPDK's words", func(t *TransportID) { t.AdrFam = "IPv4" }, true},
		{"another transport", func(t *TransportID) { t.TrType = "TCP" }, false},
		{"another address", func(t *TransportID) { t.TrAddr = "192.0.2.2" }, false},
		{"another port", func(t *TransportID) { t.TrSvcID = "4421" }, false},
		{"another subsystem, by case alone", func(t *TransportID) { t.SubNQN = "nqn.A" }, false},
	} {
		told := asked
		tc.told(&told)
		if got := asked.Same(told); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
